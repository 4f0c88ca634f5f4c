"""The two protocols: counts of calls and evaluations, and failures as rows."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
pytest.importorskip("ase", reason="ase is only in the environments of nox -s founding")
import numpy as np
import torch
from ase.build import molecule

from ivhl.measure.timing import Schedule
from studies.founding.__main__ import main
from studies.founding.calculator import StudentCalculator
from studies.founding.configurations import CONFIGURATIONS, Configuration, method_of
from studies.founding.protocol import (
    MOLECULES,
    TRIALS,
    WARM_UP_CALLS,
    Moving,
    make_student,
    run_corrected,
    run_row,
    run_seed,
)
from studies.founding.student_seed import CUTOFF

if TYPE_CHECKING:
    from pathlib import Path

    from studies.founding.model import Evaluate, Student

pytestmark = [
    # ase uses it, and NumPy 2.5 deprecates it.
    pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning"),
]

SHORT = Schedule(block_s=1e-3, total_s=0.02, min_rounds=9, max_rounds=9)
BY_NAME = {configuration.name: configuration for configuration in CONFIGURATIONS}


def stale(student: Student) -> Evaluate:
    """Evaluate once and return that result always, like a broken cache."""
    results: list[tuple[torch.Tensor, torch.Tensor]] = []

    def evaluate(
        numbers: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not results:
            results.append(student.predict_energy_and_forces(numbers, positions))
        return results[0]

    return evaluate


def broken(_: Student) -> Evaluate:
    raise RuntimeError("no such\n  backend")


@pytest.mark.parametrize("name", MOLECULES)
def test_atoms_that_never_move_are_evaluated_once(name: str) -> None:
    run = run_seed(name, method_of)
    assert (run.calls, run.evaluations) == (WARM_UP_CALLS + TRIALS, 1)
    assert run.frames == 0


@pytest.mark.parametrize("name", MOLECULES)
def test_atoms_that_move_are_evaluated_once_in_each_call(name: str) -> None:
    run = run_corrected(name, method_of, schedule=SHORT)
    assert run.evaluations == run.calls > len(run.arm.samples_s)
    assert run.energy_error < 1e-5
    assert run.force_error < 1e-5


def test_every_call_moves_every_atom_and_changes_the_energy_but_no_edge() -> None:
    call = Moving("C6H6", StudentCalculator(method_of(make_student())))
    places, energies, edges = [], [], []
    for _ in range(4):
        energies.append(call()[0])
        places.append(call.atoms.get_positions())
        edges.append(call.atoms.get_all_distances() <= CUTOFF)
    for before, after in pairwise(places):
        step = np.linalg.norm(after - before, axis=1)
        assert step.min() > 0.0
        assert step.max() == pytest.approx(1e-3)
    assert energies[0] != energies[1]
    assert all((mask == edges[0]).all() for mask in edges)


def test_a_model_that_repeats_itself_is_far_from_the_reference() -> None:
    honest = run_corrected("H2O", method_of, schedule=SHORT)
    repeated = run_corrected("H2O", stale, schedule=SHORT)
    assert repeated.force_error > 100.0 * honest.force_error


def test_a_call_without_an_evaluation_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moving, "__call__", call_without_moving)
    with pytest.raises(RuntimeError, match=r"evaluated 1 times in \d+ calls"):
        run_corrected("H2", method_of, schedule=SHORT)


def call_without_moving(moving: Moving) -> tuple[float, Any]:
    moving.calls += 1
    return moving.atoms.get_potential_energy(), moving.atoms.get_forces()


def test_a_failed_run_is_a_row_with_its_error() -> None:
    configuration = Configuration(name="broken", seed=broken, corrected=broken)
    row = run_row("H2", configuration, schedule=SHORT)
    assert row.seed is None
    assert row.corrected is None
    assert row.seed_error == row.corrected_error == "RuntimeError: no such backend"


def test_torch_refuses_a_mode_together_with_options() -> None:
    names = [n for n in BY_NAME if n.startswith("compile") and BY_NAME[n].seed and n[7] != ","]
    assert len(names) == 5
    for name in names:
        make = BY_NAME[name].seed
        assert make is not None
        with pytest.raises(RuntimeError, match="Either mode or options"):
            run_seed("H2", make)


def test_the_scripts_calculator_runs_no_compiled_code() -> None:
    make = BY_NAME["compile, no options"].seed
    assert make is not None
    run = run_seed("H2", make)
    assert (run.evaluations, run.frames) == (1, 0)


@pytest.mark.parametrize("name", ["compile default", "compile, all pairs"])
def test_the_corrected_calculator_runs_compiled_code(name: str) -> None:
    make = BY_NAME[name].corrected
    assert make is not None
    run = run_corrected("H2", make, schedule=SHORT)
    assert run.frames > 0
    assert run.evaluations == run.calls
    assert run.force_error < 1e-5


@pytest.mark.parametrize("name", ["TorchScript", "FP16", "TorchScript + FP16", "all pairs"])
def test_other_configurations_compute_the_same_forces(name: str) -> None:
    make = BY_NAME[name].corrected
    assert make is not None
    run = run_corrected("H2O", make, schedule=SHORT)
    assert run.force_error < (1e-2 if "FP16" in name else 1e-5)


def test_the_calculator_returns_energy_and_forces_of_the_student() -> None:
    student = make_student()
    atoms = molecule("CH4")
    atoms.rattle(0.05, seed=1)
    atoms.calc = StudentCalculator(method_of(student))
    energy, forces = student.predict_energy_and_forces(
        torch.tensor(atoms.numbers), torch.tensor(atoms.positions, dtype=torch.float32)
    )
    assert atoms.get_potential_energy() == float(energy)
    assert (atoms.get_forces() == forces.double().numpy()).all()


def test_main_prints_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    arguments = ["--molecule", "H2", "--configuration", "baseline", "--quick", "--machine", "here"]
    assert main([*arguments, "--export", str(path)]) == 0
    assert "| H2 | baseline |" in capsys.readouterr().out
    run = json.loads(path.read_text(encoding="utf-8"))
    assert run["rows"][0]["seed"]["evaluations"] == 1
    assert run["threads"] == 1


@pytest.mark.parametrize("kind", ["molecule", "configuration"])
def test_unknown_names_are_errors(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--{kind}", "H3"]) == 2
    assert f"error: unknown {kind} 'H3'" in capsys.readouterr().err
