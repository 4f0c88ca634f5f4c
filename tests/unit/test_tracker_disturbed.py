"""A run whose calibration is off those of its machine is found, and no other."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.records.record import Calibration
from ivhl.tracker.changes.disturbed import EXPLAINED, FEWEST, disturbed_of, left_out
from ivhl.tracker.store.course import MemoryHistory
from ivhl.tracker.store.metrics import Measured, difference, is_calibrated
from tests.builders.records import make_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.tracker.store.entries import Entry


def runs(
    seconds: Sequence[float],
    machine: str = "bench",
    clock: Literal["cpu", "cuda_event"] = "cpu",
) -> list[Entry]:
    """Return an entry for each calibration, on one machine."""
    base = make_record()
    conditions = replace(base.conditions, clock=clock)
    where = replace(base.machine, name=machine)
    records = (
        replace(
            base,
            machine=where,
            conditions=conditions,
            calibration=Calibration(compute_s=(one,) * 4, memory_s=(6e-4,) * 4),
        )
        for one in seconds
    )
    return list(MemoryHistory(records).entries)


STEADY = [4.24e-5, 4.25e-5, 4.26e-5, 4.28e-5, 4.30e-5] * 4


@pytest.mark.parametrize(("other", "found"), [(4.6e-5, False), (4.8e-5, True), (6.3e-5, True)])
def test_a_run_is_disturbed_beyond_what_its_machine_shows(other: float, *, found: bool) -> None:
    entries = runs([*STEADY, other])
    assert disturbed_of(entries) == ({entries[-1].id} if found else set())


def test_a_machine_whose_speed_varies_has_no_disturbed_runs() -> None:
    """The fence is of its own runs: `h200` calibrated in 13 to 24 µs, on a shared processor."""
    assert not disturbed_of(runs([1.3e-5, 1.45e-5, 1.6e-5, 1.75e-5, 1.9e-5, 2.1e-5, 2.35e-5] * 2))


def test_each_machine_has_its_own_usual_speed() -> None:
    number = count()
    slower = runs([2 * one for one in STEADY[:8]], machine="slower")
    both = [*runs(STEADY * 3), *slower]
    assert not disturbed_of([entry._replace(id=next(number)) for entry in both])


def test_of_few_runs_nobody_knows_what_is_usual_and_a_gpu_has_a_clock_of_its_own() -> None:
    assert not disturbed_of(runs([*STEADY[: FEWEST - 2], 9e-5]))
    assert disturbed_of(runs([*STEADY[: FEWEST - 1], 9e-5]))
    assert not disturbed_of(runs([*STEADY, 9e-5], clock="cuda_event"))
    without = [entry._replace(calibration=None) for entry in runs([*STEADY, 9e-5])]
    assert not disturbed_of(without)


@given(st.lists(st.floats(1e-5, 1e-3), min_size=FEWEST, max_size=40))
def test_at_most_a_quarter_of_the_runs_are(seconds: list[float]) -> None:
    assert len(disturbed_of(runs(seconds))) <= len(seconds) / 4


def test_a_cell_whose_yardstick_is_slower_has_no_disturbed_runs() -> None:
    """The sine of PyTorch 2.4.1 took 1.12 times as long on Intel's; half of its runs were out."""
    number = count()
    slower = runs([1.12 * one for one in STEADY])
    other = [entry._replace(case=entry.case._replace(torch="2.4.1")) for entry in slower]
    both = [entry._replace(id=next(number)) for entry in (*runs(STEADY), *other)]
    assert not disturbed_of(both)
    loud = both[-1]
    assert loud.calibration is not None
    speed = loud.calibration._replace(value=1.3 * loud.calibration.value)
    assert disturbed_of([*both[:-1], loud._replace(calibration=speed)]) == {loud.id}


def test_speeds_by_two_yardsticks_are_not_compared() -> None:
    """Of Intel's processors; on AMD's the sine is the same code in all releases."""
    base = replace(
        make_record(torch="2.6.0"), calibration=Calibration(compute_s=(5e-5,), memory_s=())
    )
    older = replace(base, cell=replace(base.cell, torch="2.4.1"))
    code = replace(base, calibration=Calibration(code_s=(2e-5,), memory_s=()))
    for other in (older, code):
        assert not is_calibrated(base, other, "eager")
        assert difference(base, other, "eager") == 0.0
    first, second = (
        replace(one, machine=replace(one.machine, cpu="AMD EPYC")) for one in (base, older)
    )
    assert is_calibrated(first, second, "eager")
    slower = replace(code, calibration=Calibration(code_s=(4e-5,), memory_s=()))
    assert difference(code, slower, "eager") == pytest.approx(-math.log(2))


@given(
    st.lists(st.floats(0.2, 5.0), min_size=FEWEST, max_size=12),
    st.floats(0.01, 100.0),
    st.floats(1.2, 3.0),
)
def test_a_run_that_no_contention_explains_is_never_left_out(
    quiet: list[float], speedup: float, slower: float
) -> None:
    entries = runs([*(5e-5 for _ in quiet), 5e-5 * slower])
    values = [*quiet, speedup]
    entries = [
        entry._replace(values=entry.values | {"speedup": Measured(value, 0.01)})
        for entry, value in zip(entries, values, strict=True)
    ]
    explained = min(quiet) / EXPLAINED <= speedup <= max(quiet) * EXPLAINED
    assert disturbed_of(entries) == ({entries[-1].id} if explained else set())


def test_runs_that_are_left_out_are_named_with_their_cases() -> None:
    found = [
        entry._replace(case=entry.case._replace(workload=f"ops.w{n}"))
        for n, entry in enumerate(runs(STEADY[:5]))
    ]
    case = f"{found[0].case.size}/{found[0].case.variant} in {found[0].case.cell}"
    assert left_out(found, ()) == ""
    said = left_out(found, {found[0].id})
    assert said.startswith("1 run was disturbed")
    assert said.endswith(f"in time: ops.w0/{case}")
    said = left_out(found, {entry.id for entry in found})
    assert said.startswith("5 runs were disturbed")
    assert said.endswith(f"ops.w2/{case} and 2 others; ivhl course CASE marks them with !")
