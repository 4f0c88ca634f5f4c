"""A run reports the time of its own records per phase and cell."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from ivhl.tracker.support.timings import PHASES, recorded_since, render_timings
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from ivhl.records.record import RunRecord

BEGAN = datetime(2026, 11, 1, 12, 0, 0, 700_000, tzinfo=UTC)


def shown(records: list[RunRecord], *, wall_s: float = 9.6, width: int = 80) -> list[list[str]]:
    sink = StringIO()
    Console(file=sink, width=width).print(render_timings(records, wall_s=wall_s))
    return [line.split() for line in sink.getvalue().splitlines()]


def test_seconds_are_summed_per_phase_and_cell_with_their_share() -> None:
    records = [
        make_record(torch="2.5.1", phase_s={"compile": 6.0, "start": 1.0}),
        make_record(torch="2.5.1", variant="b", phase_s={"compile": 2.0, "timing": 1.0}),
        make_record(torch="2.6.0", phase_s={"compile": 8.0, "timing": 2.0}),
        make_failure("environment", phase="environment"),
    ]
    assert shown(records) == [
        ["py3.12", "py3.12"],
        ["seconds", "in", "all", "cells", "share", "torch2.5.1", "torch2.6.0"],
        ["start", "1.0", "5%", "1.0", "0.0"],
        ["compile", "16.0", "80%", "8.0", "8.0"],
        ["timing", "3.0", "15%", "1.0", "2.0"],
        ["all", "20.0", "10.0", "10.0"],
        ["3", "cases", "measured,", "10", "s", "of", "wall", "time"],
    ]


def test_phases_are_in_the_order_of_a_process_and_new_ones_last() -> None:
    phases = {"tea": 1.0, **dict.fromkeys(reversed(PHASES), 1.0)}
    rows = shown([make_record(phase_s=phases)])
    assert [row[0] for row in rows[2:-2]] == [*PHASES, "tea"]


@pytest.mark.parametrize("phase_s", [None, {}, {"compile": 0.0}])
def test_a_run_without_seconds_has_a_table(phase_s: dict[str, float] | None) -> None:
    rows = shown([make_record(phase_s=phase_s)], wall_s=0.0)
    assert ["all", "0.0", *(["0.0"] * bool(phase_s))] in rows
    assert rows[-1][:2] == (["1", "case"] if phase_s else ["0", "cases"])


def test_records_belong_to_a_run_if_they_are_not_older() -> None:
    records = [
        make_record(recorded_at=f"2026-11-01T{time}")
        for time in ("11:59:59+00:00", "12:00:00+00:00", "12:00:00+01:00", "14:00:01+01:00")
    ]
    # Records have whole seconds; a record of the second in which the run began belongs to it.
    assert recorded_since(records, BEGAN) == (records[1], records[3])
