"""Errors match their definitions, and the model card keeps its text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
pytest.importorskip("numpy", reason="NumPy is where weights are made, and in the tests")
import numpy as np
import torch

from ivhl.mlff.batch import batch_energies_forces
from ivhl.mlff.painn import make_parameters
from studies.training.card import BEGIN, END, choose_samples, figures_of, write_card, write_samples
from studies.training.dataset import Labelled, SamplingPlan
from studies.training.evaluate import AT_ONCE, errors_of, evaluate, residuals
from studies.training.fit import Hyperparameters
from studies.training.plans import TrainingJob
from studies.training.subjects import FAMILIES

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.mlff.painn import Parameters

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

N_FAMILIES = 4


def make_weights() -> Parameters:
    parameters = make_parameters(torch.Generator().manual_seed(2))
    reference = torch.full((101,), torch.nan, dtype=torch.float64)
    reference[[0, 1, 8]] = torch.tensor([0.0, -13.0, -110.0], dtype=torch.float64)
    return {**parameters, "reference_energies": reference}


def make_frames(name: str, numbers: list[int], *, off: float = 0.0) -> Labelled:
    """Return frames labelled by the model, with errors ``off`` in eV and eV/Å."""
    n_frames = 3 * 2 * N_FAMILIES
    generator = np.random.default_rng(len(numbers))
    positions = np.arange(3.0 * len(numbers)).reshape(-1, 3) / 3.0 + 0.1 * (
        generator.standard_normal((n_frames, len(numbers), 3))
    )
    many = torch.tensor([numbers] * n_frames)
    energies, forces = batch_energies_forces(make_weights(), many, torch.from_numpy(positions))
    whole = energies.numpy() + sum({1: -13.0, 8: -110.0}[z] for z in numbers)
    return Labelled(
        name=name,
        numbers=np.array(numbers),
        positions=positions,
        energies=whole + off * len(numbers) * np.resize([1.0, -1.0], n_frames),
        forces=forces.numpy() - off,
        families=np.repeat(np.arange(N_FAMILIES), 6),
        trajectories=np.tile([0, 0, 1, 1, 2, 2], N_FAMILIES),
        n_dropped=2,
    )


def test_residuals_are_model_minus_label_per_atom_and_component() -> None:
    energies, forces = residuals(make_weights(), make_frames("H2O", [8, 1, 1], off=0.5))
    assert energies[:4] == pytest.approx([-0.5, 0.5, -0.5, 0.5], abs=1e-9)
    assert forces.shape == (24, 3, 3)
    assert np.abs(forces - 0.5).max() < 1e-9


def test_errors_are_mae_and_rmse_in_milli_units() -> None:
    errors = errors_of(
        [np.array([0.003, -0.001])], [np.array([[[0.0, 0.0, 0.03]]]), np.array([[[-0.01, 0, 0]]])]
    )
    assert errors.n_frames == 2
    assert errors.energy_mae == pytest.approx(2.0)
    assert errors.energy_rmse == pytest.approx(np.sqrt(5.0))
    assert errors.force_mae == pytest.approx(40.0 / 6.0)
    assert errors.force_rmse == pytest.approx(np.sqrt(1000.0 / 6.0))
    with pytest.raises(ValueError, match="at least one frame, got none"):
        errors_of([], [])


def test_many_frames_are_evaluated_in_batches() -> None:
    frames = make_frames("H2", [1, 1], off=0.25)
    names = ("positions", "energies", "forces", "families", "trajectories")
    longer: dict[str, Any] = {name: np.concatenate([getattr(frames, name)] * 4) for name in names}
    repeated = replace(frames, **longer)
    assert len(repeated.energies) > AT_ONCE
    errors = evaluate(make_weights(), [repeated])
    assert errors.n_frames == 96
    assert errors.energy_mae == pytest.approx(250.0)
    assert errors.force_rmse == pytest.approx(250.0)


def test_the_card_keeps_its_text_and_changes_its_figures(tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    card.write_text(f"before\n\n{BEGIN}\n\nold\n\n{END}\n\nafter\n", encoding="utf-8")
    write_card(card, "| new |\n")
    write_card(card, "| new |\n")
    assert card.read_text(encoding="utf-8") == f"before\n\n{BEGIN}\n\n| new |\n\n{END}\n\nafter\n"


@pytest.mark.parametrize("text", ["nothing\n", f"{BEGIN}\n", f"{END}\n{BEGIN}\n"])
def test_a_card_without_its_marks_is_refused(tmp_path: Path, text: str) -> None:
    card = tmp_path / "card.md"
    card.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"card\.md must have the lines"):
        write_card(card, "| new |\n")
    assert card.read_text(encoding="utf-8") == text


def test_samples_cycle_through_the_families(tmp_path: Path) -> None:
    frames = [make_frames("H2", [1, 1]), make_frames("H2O", [8, 1, 1]), make_frames("O2", [8, 8])]
    samples = choose_samples(frames, N_FAMILIES)
    assert [m.families.tolist() for m in samples] == [[0, 2], [1, 3], [0, 2]]
    # A family without frames has no sample.
    left = frames[0].take(frames[0].families != 0)
    assert choose_samples([left], N_FAMILIES)[0].families.tolist() == [2]
    write_samples(tmp_path / "s.json", samples)
    content = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert [m["molecule"] for m in content] == ["H2", "H2O", "O2"]
    assert np.abs(np.array(content[1]["forces"]) - samples[1].forces).max() <= 0.5e-8
    assert np.abs(np.array(content[1]["energies"]) - samples[1].energies).max() <= 0.5e-8


def test_figures_come_from_the_held_back_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("studies.training.card.version", lambda _: "9.9")
    plan = SamplingPlan(
        families=FAMILIES[:N_FAMILIES], n_trajectories=3, n_frames=2, seed=1, versions={}
    )
    recipe = Hyperparameters(seed=1, n_epochs=2, batch_size=4, learning_rate=1e-3, ema_decay=0.9)
    job = TrainingJob(plan=plan, trained=("H2", "H2O"), unseen=("O2",), recipe=recipe)
    right, wrong = make_frames("H2", [1, 1]), make_frames("H2O", [8, 1, 1], off=0.0036)
    # No table has errors of trained frames.
    wrong.energies[wrong.trajectories != 2] += 100.0
    figures = figures_of(
        make_weights(),
        job,
        [right, wrong],
        [make_frames("O2", [8, 8], off=0.002)],
        [right],
        command="nox -s train-mlff",
        compiled=True,
    )
    assert "| H2 | 8 | 0.00 | 0.00 | 0.0 | 0.0 |\n" in figures
    assert "| H2O | 8 | 3.60 | 3.60 | 3.6 | 3.6 |\n" in figures
    assert "| **all** | 16 | 1.80 | 2.55 | 2.2 | 2.8 |\n" in figures
    assert "meV/Å: energy MAE reached, energy RMSE not reached, force MAE reached" in figures
    assert f"| {FAMILIES[3].name} | 4 | 1.80 | 2.55 | 2.2 | 2.8 |\n" in figures
    assert "| O2 | 24 | 2.00 | 2.00 | 2.0 | 2.0 |\n" in figures
    assert "16 to train on, 16 for validation, 16 held back; 4 dropped" in figures
    assert "| weights | 589,185 |" in figures
    assert "torch 9.9" in figures
