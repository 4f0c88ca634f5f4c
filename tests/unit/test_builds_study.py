"""Two builds of a Python are compared round by round."""

from __future__ import annotations

import math
from dataclasses import replace

from ivhl.records.record import Arm, RunRecord
from studies.builds import CASES, effects_found, table
from tests.builders.records import make_record


def side(factor: float) -> list[RunRecord]:
    """Return three rounds, of which each is slower than the one before."""
    return [
        replace(
            make_record(workload=case, speedup=2.0 / factor),
            recorded_at=f"2026-11-26T12:0{number}:00+00:00",
            compiled=Arm(calls=1, samples_s=(1e-3 * factor * math.exp(number),) * 8),
        )
        for number in range(3)
        for case in CASES
    ]


def test_what_moves_both_builds_of_a_round_moves_no_ratio() -> None:
    lines = table(side(1.0), side(0.8))
    assert "| compiled | 3 | 0.80x [0.80, 0.80] |" in lines
    assert "| speedup | 3 | 1.25x [1.25, 1.25] |" in lines


def test_effects_are_counted_in_all_rounds_that_follow_one_another() -> None:
    # Four cases, with three rounds: two times two, once three, and never four.
    assert "| compiled | 8 of 8 | 4 of 4 | 0 of 0 |" in effects_found(side(1.0), side(0.8))
    assert "| compiled | 0 of 8 | 0 of 4 | 0 of 0 |" in effects_found(side(1.0), side(1.001))
