"""Variants that cheat are refused or get no speedup; honest variants are measured.

Bounds follow from counting work: a variant that does eager's work, in any process, cannot be faster
than eager; 20 % is left for noise.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ivhl.machine.identity import this_machine
from ivhl.measure.effort import PROCESSES, Effort
from ivhl.measure.run import Run
from ivhl.measure.runner import run_cases
from ivhl.records.reader import read_record
from ivhl.records.record import Cell, FailureClass, RunRecord
from ivhl.workload import load_workloads, select_cases
from tests.e2e.cheats import STATES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from _pytest.mark import ParameterSet

pytest.importorskip("torch", reason="cheats need torch")
WORKLOADS = "tests.e2e.cheats:WORKLOADS"
# For the same work as eager's.
NO_FASTER = 1.2
# For eight steps of three operations each, fused into one loop.
ANY = 100.0
# Guesses when it is checked: refused for any reason, or not faster.
BETS = None


def slow(workload: str, expected: FailureClass | float | None, says: str = "") -> ParameterSet:
    """Return a row that only ``tests-full`` runs: ``tests`` has another one of its kind."""
    return pytest.param(workload, expected, says, marks=pytest.mark.full, id=workload)


def quick(workload: str, expected: FailureClass | float | None, says: str = "") -> ParameterSet:
    """Return a row that runs in ``tests``."""
    return pytest.param(workload, expected, says, id=workload)


# Workload, failure class or the largest speedup, and what the message or a warning says.
EXPECTED = [
    slow("keeps.first", "eager_failed", "own source"),
    quick("keeps.by_version", "remembers", "a call on new data"),
    slow("keeps.by_sample", "remembers", "a call on new data"),
    slow("keeps.by_value", "remembers", "a call on new data"),
    slow("keeps.half", "remembers", "a call on new data"),
    slow("keeps.later", "remembers", "a call on new data"),
    slow("keeps.by_number", "wrong", "against float64"),
    slow("keeps.seeds", "remembers", "a call on new data"),
    slow("keeps.only_seeds", "wrong", "on new data, the"),
    slow("keeps.block_ends", BETS),
    quick("keeps.buffer", "side_effect", "memory of the previous call"),
    quick("keeps.fixed", "inputs", "names every input"),
    quick("elsewhere.lazy", "side_effect", "call returns a Later"),
    slow("elsewhere.lazy_input", "side_effect", "prepare returns a Later"),
    slow("elsewhere.after", BETS),
    slow("elsewhere.thread", NO_FASTER),
    quick("elsewhere.worker", NO_FASTER),
    slow("elsewhere.orphan", NO_FASTER),
    slow("elsewhere.daemon", BETS),
    slow("elsewhere.per_call", NO_FASTER),
    quick("elsewhere.unwaited", "side_effect", "SIGCHLD"),
    slow("elsewhere.sleeps", "remembers", "a call on new data"),
    slow("elsewhere.burns", "side_effect", "while eager was timed"),
    slow("elsewhere.holds", "side_effect", "while eager was timed"),
    slow("elsewhere.eager_burns", "side_effect", "while eager was timed"),
    quick("elsewhere.prepare", "side_effect", "computed does work of the call without"),
    slow("elsewhere.finish", "side_effect", "computed does work of the call without"),
    slow("changes.input", "side_effect", "changes its inputs"),  # bad.mutates in test_faults.py
    slow("changes.threads", "side_effect", "changes the process"),
    slow("changes.source_grad", "side_effect", "changes the process"),
    *(
        slow(f"changes.{who}{state}", "side_effect", "changes the process")
        for who in ("", "source_")
        for state in STATES
        if who + state not in {"threads", "source_grad", "collector", "source_collector"}
    ),
    slow("changes.collector", "side_effect", "garbage collector"),
    slow("changes.source_collector", "side_effect", "garbage collector"),
    quick("wrong.source", "eager_failed", "own source"),
    quick("wrong.element", "wrong", "has an element with an error"),
    quick("wrong.later", "wrong", "after round"),
    slow("wrong.every_other", "wrong", "after round"),
    slow("wrong.raises_later", "compile", "no more"),
    slow("compiles.counts", NO_FASTER, "recompile limit"),  # good.recompiles_silently there
    slow("compiles.counts_later", NO_FASTER, "recompile limit"),
    slow("compiles.breaks_later", ANY),
    slow("compiles.helper", NO_FASTER),
    quick("compiles.breaks", ANY),
    slow("compiles.breaks_untraceable", ANY),
    slow("honest.good", ANY),
    quick("honest.trivial", NO_FASTER),
    slow("honest.dynamic", ANY),
    slow("honest.integers", ANY),
    slow("honest.complex", ANY),
    slow("honest.gradient", ANY),
    slow("honest.view", NO_FASTER),
    slow("honest.lengths", ANY, "the data cannot change"),
    slow("honest.same_data", ANY, "the data cannot change"),
    quick("honest.random", ANY),
    slow("honest.two_ulp", ANY),
    slow("honest.cancels", NO_FASTER),
    slow("wrong.cancels", "eager_failed", "own source"),
    slow("honest.slow", ANY),
]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(PROCESSES, id="timed"),
        pytest.param(0, id="verdict", marks=pytest.mark.full),
    ],
)
def records(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> dict[str, RunRecord]:
    """Return the records of the workloads of this session, timed or only judged."""
    rows = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
        and "workload" in item.callspec.params
    ]
    # In `tests`, which has a row of each kind, a single process times each.
    quick = not any(row.get_closest_marker("full") for row in rows)
    processes = min(request.param, 1) if quick else request.param
    wanted = [str(row.callspec.params["workload"]) for row in rows]
    return measure(wanted, tmp_path_factory.mktemp("cheats"), cache, processes)


def measure(
    names: Iterable[str], folder: Path, cache: Path, processes: int
) -> dict[str, RunRecord]:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    run = Run(
        project="cheats",
        commit="0" * 40,
        workloads=WORKLOADS,
        cell=Cell(id=f"py{version}-torch0.0", python=version, torch="0.0", lock_sha256=None),
        machine=this_machine("test"),
        results=str(folder / "results"),
        scratch=str(folder / "scratch"),
        cache=str(cache),
        repeat="repeat",
        effort=Effort(deadline_s=120, memory_limit=4 << 30, processes=processes),
    )
    run_cases(run, select_cases(load_workloads(WORKLOADS), names=tuple(dict.fromkeys(names))))
    lines = run.record_file.read_bytes().splitlines()
    return {(r := read_record(line)).workload: r for line in lines}


@pytest.mark.parametrize(("workload", "expected", "says"), EXPECTED)
def test_a_cheat_fails_or_has_no_false_speedup(
    records: dict[str, RunRecord], workload: str, expected: FailureClass | float | None, says: str
) -> None:
    record = records[workload]
    timed = not record.conditions.quick
    if not timed:
        assert (record.speedup, record.eager, record.compiled) == (None, None, None)
    if isinstance(expected, str):
        assert record.failure is not None, record.speedup
        assert record.failure.failure_class == expected, record.failure.message
        assert says in record.failure.message
        assert record.speedup is None
    elif expected is BETS and (record.failure is not None or not timed):
        assert record.speedup is None
    else:
        assert record.failure is None, record.failure
        if timed:
            assert record.speedup is not None
            assert record.speedup.low < (expected or NO_FASTER)
        assert not says or any(says in warning.text for warning in record.warnings)


@pytest.mark.parametrize("workload", ["compiles.breaks"])
def test_graph_breaks_are_recorded(records: dict[str, RunRecord], workload: str) -> None:
    told = records[workload].compile
    assert told is not None
    assert told.graph_breaks
    assert told.graphs is not None
    assert told.graphs >= 2


def test_every_cheat_has_an_expected_outcome() -> None:
    names = [str(row.values[0]) for row in EXPECTED]
    assert sorted(names) == sorted(w.name for w in load_workloads(WORKLOADS))
