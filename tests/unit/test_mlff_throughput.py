"""All arms of the throughput table compute the same molecules."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.molecules.energy_forces import N_ATOMS, Size, cost
from benchmarks.molecules.energy_forces.calls import make_inputs
from benchmarks.molecules.energy_forces.one_graph import energy_forces_one_graph
from ivhl.mlff import painn
from ivhl.mlff.parameters import cast_parameters
from studies import throughput

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Restore the number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_all_arms_compute_the_same_energies() -> None:
    molecules = throughput.make_molecules(10)
    weights = painn.make_parameters(torch.Generator().manual_seed(0))
    parameters = cast_parameters(weights, dtype=torch.float32, device="cpu")
    arms = throughput.make_arms(molecules, parameters, way="eager")
    totals = {name: float(sum(e.double().sum() for e in run())) for name, run in arms.items()}
    assert len(totals) == 4
    for total in totals.values():
        assert total == pytest.approx(totals["one by one"], abs=1e-3)
    assert abs(totals["one by one"]) > 1.0


def test_molecules_are_mixed_and_smaller_than_the_cutoff() -> None:
    molecules = throughput.make_molecules(8)
    assert tuple(len(numbers) for numbers, _ in molecules) == throughput.COUNTS
    for _, positions in molecules:
        distances = torch.nn.functional.pdist(positions)
        assert float(distances.min()) > 0.5
        assert float(distances.max()) < painn.CUTOFF


@pytest.mark.parametrize("molecule", N_ATOMS)
def test_operations_are_counted_as_in_the_workload(molecule: str) -> None:
    assert throughput.count_flops(N_ATOMS[molecule]) == cost(Size(molecule)).flops


@pytest.mark.parametrize("molecule", N_ATOMS)
def test_operations_agree_with_pytorchs_count(molecule: str) -> None:
    """PyTorch counts a little less: the first layer's scalars do not depend on the positions."""
    size = Size(molecule)
    parameters, numbers, positions = make_inputs(size, torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        energy_forces_one_graph(parameters, numbers, positions)
    assert 0.85 < counter.get_total_flops() / cost(size).flops < 1.0


def test_every_arm_is_timed_in_every_round() -> None:
    calls = {"a": 0, "b": 0}

    def run(name: str) -> list[torch.Tensor]:
        calls[name] += 1
        return []

    samples = throughput.time_arms(
        {name: partial(run, name) for name in calls},
        device=torch.device("cpu"),
        rounds=3,
        least_s=1e-5,
    )
    assert {name: len(seconds) for name, seconds in samples.items()} == {"a": 3, "b": 3}
    assert calls["a"] >= 6
    assert calls["b"] >= 6


@pytest.mark.usefixtures("one_thread")
def test_the_table_has_a_line_for_each_arm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["throughput", "--rounds", "1", "--least-seconds", "0", "--batch", "1", "2"]
    monkeypatch.setattr(sys, "argv", arguments)
    throughput.main()
    lines = capsys.readouterr().out.splitlines()[3:]
    assert [line.split()[0] for line in lines] == ["1"] * 4 + ["2"] * 4
    assert "one by one" in lines[0]
    assert "1.00x" in lines[0]
