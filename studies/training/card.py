"""Write the figures of the model card, and the frames of the tests."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from studies.training.dataset import select_part
from studies.training.evaluate import errors_of, evaluate, residuals
from studies.training.fit import leaves_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.mlff.painn import Parameters
    from studies.training.dataset import Array, Labelled
    from studies.training.evaluate import Errors
    from studies.training.plans import TrainingJob

BEGIN: Final = "<!--figures: nox -s train-mlff -->"
END: Final = "<!--end of figures-->"
HEAD: Final = (
    "| {} | frames | energy MAE | energy RMSE | force MAE | force RMSE |\n"
    "|---|---:|---:|---:|---:|---:|\n"
)
ENERGY_GOAL: Final = 2.0  # meV/atom
FORCE_GOAL: Final = 50.0  # meV/Å
# Frames of each molecule for the tests. Their families differ from molecule to molecule.
N_SAMPLES: Final = 2


def write_card(path: Path, figures: str) -> None:
    """Replace the figures in a model card and keep its text; create a missing card.

    Raises:
        ValueError: If the card lacks one of the two marks, each on its own line, in this order.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else f"{BEGIN}\n{END}\n"
    lines = text.split("\n")
    if lines.count(BEGIN) != 1 or lines.count(END) != 1 or lines.index(BEGIN) > lines.index(END):
        raise ValueError(f"{path} must have the lines {BEGIN!r} and {END!r}, in this order")
    before, after = lines[: lines.index(BEGIN) + 1], lines[lines.index(END) :]
    path.write_text("\n".join([*before, "", figures.strip("\n"), "", *after]), encoding="utf-8")


def figures_of(
    parameters: Parameters,
    job: TrainingJob,
    trained: Sequence[Labelled],
    unseen: Sequence[Labelled],
    samples: Sequence[Labelled],
    *,
    command: str,
    compiled: bool,
) -> str:
    """Return the figures of the model card as Markdown.

    Args:
        parameters: Weights with reference energies.
        job: Settings of the run.
        trained: All frames of the molecules for training.
        unseen: All frames of the molecules that were not trained on.
        samples: The frames of the tests.
        command: Command that makes the weights.
        compiled: Whether the training steps were compiled.
    """
    n = job.plan.n_trajectories
    parts = {
        part: [select_part(m, part, n) for m in trained]
        for part in ("train", "validation", "held back")
    }
    held_back = parts["held back"]
    found = [residuals(parameters, m) for m in held_back]
    by_molecule = [
        _row(m.name, errors_of([e], [f])) for m, (e, f) in zip(held_back, found, strict=True)
    ]
    everything = errors_of([e for e, _ in found], [f for _, f in found])
    by_family = [
        _row(family.name, _of_family(held_back, found, index))
        for index, family in enumerate(job.plan.families)
    ]
    others = [_row(m.name, evaluate(parameters, [m])) for m in unseen]
    counts = {part: sum(len(m.energies) for m in parts[part]) for part in parts}
    n_dropped = sum(m.n_dropped for m in trained)
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "tblite", "ase", "numpy"))
    recipe = job.recipe
    return f"""\
| | |
|---|---|
| command | `{command}` |
| made with | Python {platform.python_version()}, {versions}; {"compiled" if compiled else "eager"} |
| weights | {sum(leaf.numel() for leaf in leaves_of(_without_references(parameters))):,} |
| molecules | {", ".join(m.name for m in trained)} |
| frames | {counts["train"]:,} to train on, {counts["validation"]:,} for validation, \
{counts["held back"]:,} held back; {n_dropped:,} dropped |
| training | seed {recipe.seed}, {recipe.n_epochs} epochs, {recipe.batch_size} molecules a step, \
learning rate {recipe.learning_rate:g} |

Errors on held-back frames: energies in meV/atom, components of forces in meV/Å:

{HEAD.format("molecule")}{"".join(by_molecule)}{_row("**all**", everything)}
{_goal(everything)}

The same errors by origin of the geometries:

{HEAD.format("family")}{"".join(by_family)}
All frames of molecules that the training data lack:

{HEAD.format("molecule")}{"".join(others)}
Frames in the repository's tests:

{HEAD.format("")}{_row("frames of the tests", evaluate(parameters, samples))}"""


def choose_samples(held_back: Sequence[Labelled], n_families: int) -> list[Labelled]:
    """Return a few frames of each molecule, chosen independently of their errors.

    For molecule ``k``: the first frame of the families ``k`` and ``k + n_families / 2``, modulo
    ``n_families``, if the family has a frame.
    """
    samples = []
    for k, molecule in enumerate(held_back):
        places = []
        for number in range(N_SAMPLES):
            family = (k + number * n_families // N_SAMPLES) % n_families
            places += np.flatnonzero(molecule.families == family)[:1].tolist()
        chosen = np.zeros(len(molecule.energies), dtype=bool)
        chosen[places] = True
        if chosen.any():
            samples.append(molecule.take(chosen))
    return samples


def write_samples(path: Path, samples: Sequence[Labelled]) -> None:
    """Write frames and labels as JSON, in Å, eV and eV/Å."""
    content = [
        {
            "molecule": m.name,
            "numbers": m.numbers.tolist(),
            "positions": _rounded(m.positions),
            "energies": _rounded(m.energies),
            "forces": _rounded(m.forces),
        }
        for m in samples
    ]
    lines = ",\n".join(json.dumps(molecule) for molecule in content)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _rounded(x: Array) -> Any:  # noqa: ANN401  (nested lists)
    """Return the array as lists, rounded to 1e-8, a millionth of the errors."""
    return np.round(x, 8).tolist()


def _goal(errors: Errors) -> str:
    """Return a sentence that says for each error whether it reaches the goal."""
    verdicts = [
        f"{name} {'reached' if value <= goal else 'not reached'}"
        for name, value, goal in (
            ("energy MAE", errors.energy_mae, ENERGY_GOAL),
            ("energy RMSE", errors.energy_rmse, ENERGY_GOAL),
            ("force MAE", errors.force_mae, FORCE_GOAL),
            ("force RMSE", errors.force_rmse, FORCE_GOAL),
        )
    ]
    return f"The goal is {ENERGY_GOAL:g} meV/atom and {FORCE_GOAL:g} meV/Å: {', '.join(verdicts)}."


def _of_family(
    frames: Sequence[Labelled], found: Sequence[tuple[Array, Array]], index: int
) -> Errors:
    chosen = [
        (e[m.families == index], f[m.families == index])
        for m, (e, f) in zip(frames, found, strict=True)
    ]
    return errors_of([e for e, _ in chosen], [f for _, f in chosen])


def _row(name: str, errors: Errors) -> str:
    figures = asdict(errors)
    n_frames = figures.pop("n_frames")
    shown = " | ".join(f"{x:.2f}" if "energy" in key else f"{x:.1f}" for key, x in figures.items())
    return f"| {name} | {n_frames} | {shown} |\n"


def _without_references(parameters: Parameters) -> Parameters:
    return {name: x for name, x in parameters.items() if name != "reference_energies"}
