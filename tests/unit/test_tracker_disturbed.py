"""A run whose calibration is off those of its machine is found, and no other."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.records.record import Calibration
from ivhl.tracker.disturbed import FEWEST, disturbed_of, left_out
from ivhl.tracker.entries import MemoryHistory
from tests.builders.records import make_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.tracker.entries import Entry


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


def test_how_many_were_left_out_is_a_sentence() -> None:
    assert left_out(1).startswith("1 run was disturbed")
    assert left_out(2).startswith("2 runs were disturbed")
