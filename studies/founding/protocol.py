"""One molecule in one configuration, by the founding protocol and by a corrected one."""

from __future__ import annotations

import time
from statistics import mean, median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
import torch._dynamo
from ase.build import molecule
from torch._dynamo.utils import counters

from ivhl.measure.imports import SEED
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.timing import time_arms
from studies.founding.calculator import StudentCalculator
from studies.founding.configurations import method_of
from studies.founding.model import Student
from studies.founding.rows import CorrectedRun, FoundingRow, SeedRun
from studies.founding.student_seed import energy_forces, make_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.measure.timing import Schedule
    from studies.founding.configurations import Configuration, Make
    from studies.founding.student_seed import StudentParameters

MOLECULES: Final = ("H2", "H2O", "CH4", "C6H6")
WARM_UP_CALLS: Final = 3
TRIALS: Final = 20
# Displacement from ASE's geometry, where symmetry makes the student's forces arbitrary.
SHAKE: Final = 0.05  # Å
# Displacement between two calls, too small to change the edges.
STEP: Final = 1e-3  # Å
LONGEST_ERROR: Final = 300  # characters


class Moving:
    """Computes energy and forces of a molecule that moves before every call.

    Args:
        name: Name of the molecule in ``ase.build``.
        calculator: Calculator of the student.

    Attributes:
        calls: Number of calls.
    """

    def __init__(self, name: str, calculator: StudentCalculator) -> None:
        self.atoms = molecule(name)
        self.atoms.calc = calculator
        self.calls = 0
        draw = np.random.default_rng(SEED)
        place = self.atoms.positions + SHAKE * draw.normal(size=self.atoms.positions.shape)
        step = draw.normal(size=place.shape)
        self.places = (place, place + STEP * step / np.linalg.norm(step, axis=1).max())

    def __call__(self) -> tuple[float, Any]:
        """Move the atoms, and return energy in eV and forces in eV/Å."""
        self.calls += 1
        self.atoms.positions = self.places[self.calls % 2]
        return self.atoms.get_potential_energy(), self.atoms.get_forces()


def make_student() -> Student:
    """Return the student with random weights, in float32; times do not depend on weights."""
    return Student(_in_float32(_weights()))


def run_row(name: str, configuration: Configuration, *, schedule: Schedule) -> FoundingRow:
    """Run one molecule in one configuration by both protocols; an exception becomes an error.

    Args:
        name: Name of the molecule in ``ase.build``.
        configuration: Configuration to run.
        schedule: How long to time the corrected run.
    """
    seed, seed_error = _tried(configuration.seed, lambda make: run_seed(name, make))
    corrected, corrected_error = _tried(
        configuration.corrected, lambda make: run_corrected(name, make, schedule=schedule)
    )
    return FoundingRow(
        molecule=name,
        configuration=configuration.name,
        seed=seed,
        corrected=corrected,
        seed_error=seed_error,
        corrected_error=corrected_error,
    )


def run_seed(name: str, make: Make) -> SeedRun:
    """Time energy and forces of atoms that never move, as the founding benchmark did."""
    start_counting()
    calculator = StudentCalculator(make(make_student()))
    atoms = molecule(name)
    atoms.calc = calculator
    trials = []
    for _ in range(WARM_UP_CALLS + TRIALS):
        began = time.perf_counter()
        atoms.get_potential_energy()
        atoms.get_forces()
        trials.append(1e3 * (time.perf_counter() - began))
    return SeedRun(
        mean_ms=mean(trials[WARM_UP_CALLS:]),
        median_ms=median(trials[WARM_UP_CALLS:]),
        calls=len(trials),
        evaluations=calculator.evaluations,
        frames=frames_compiled(),
    )


def run_corrected(name: str, make: Make, *, schedule: Schedule) -> CorrectedRun:
    """Time moving atoms against the eager student, interleaved.

    Raises:
        RuntimeError: If a call did not evaluate the model exactly once.
    """
    start_counting()
    student = make_student()
    calculator = StudentCalculator(make(student))
    call = Moving(name, calculator)
    baseline = Moving(name, StudentCalculator(method_of(student)))
    for _ in range(WARM_UP_CALLS):
        call()
    times = time_arms(
        {"this": call, "baseline": baseline}, clock="cpu", schedule=schedule, seed=SEED
    )
    arms = {name: timed.arm() for name, timed in times.items()}
    # At both geometries: a model that repeats an earlier result is right at one of them.
    errors = [_errors(call) for _ in call.places]
    if calculator.evaluations != call.calls:
        raise RuntimeError(
            f"the model was evaluated {calculator.evaluations} times in {call.calls} calls"
        )
    return CorrectedRun(
        arm=arms["this"],
        baseline=arms["baseline"],
        speedup=paired_ratio(arms["baseline"].samples_s, arms["this"].samples_s),
        calls=call.calls,
        evaluations=calculator.evaluations,
        frames=frames_compiled(),
        energy_error=max(energy for energy, _ in errors),
        force_error=max(force for _, force in errors),
    )


def start_counting() -> None:
    """Reset Dynamo and its counters."""
    torch._dynamo.reset()  # noqa: SLF001
    counters.clear()


def frames_compiled() -> int:
    """Return how many frames Dynamo compiled since ``start_counting``.

    With ``fullgraph`` it counts no frames; then each frame is one graph.
    """
    return int(counters["frames"]["ok"] or counters["stats"]["unique_graphs"])


def _errors(call: Moving) -> tuple[float, float]:
    """Call once, and return the error of the energy in eV and the largest one of a force in eV/Å."""
    energy, forces = call()
    expected_energy, expected_forces = energy_forces(
        _weights(),
        torch.tensor(call.atoms.numbers, dtype=torch.int64),
        torch.tensor(call.atoms.positions, dtype=torch.float64),
    )
    return (
        abs(energy - float(expected_energy)),
        float(np.abs(forces - expected_forces.numpy()).max()),
    )


def _tried(make: Make | None, run: Callable[[Make], Any]) -> tuple[Any, str]:
    if make is None:
        return None, ""
    try:
        return run(make), ""
    except Exception as error:  # noqa: BLE001  (any exception belongs in the table)
        text = " ".join(str(error).split())
        if len(text) > LONGEST_ERROR:  # TorchScript's messages have the reason at the end
            half = LONGEST_ERROR // 2
            text = f"{text[:half]} ... {text[-half:]}"
        return None, f"{type(error).__name__}: {text}"


def _weights() -> StudentParameters:
    return make_parameters(torch.Generator().manual_seed(SEED))


def _in_float32(node: Any) -> Any:  # noqa: ANN401  (a nest of tensors)
    if isinstance(node, torch.Tensor):
        return node.float()
    if isinstance(node, dict):
        return {name: _in_float32(child) for name, child in node.items()}
    return [_in_float32(child) for child in node]
