"""Two builds of a Python are compared round by round."""

from __future__ import annotations

import math
from dataclasses import replace

from ivhl.records.record import Arm
from studies.builds import CASES, table
from tests.builders.records import make_record


def test_what_moves_both_builds_of_a_round_moves_no_ratio() -> None:
    def side(factor: float) -> list[object]:
        return [
            replace(
                make_record(workload=case, speedup=2.0 / factor),
                recorded_at=f"2026-11-26T12:0{number}:00+00:00",
                compiled=Arm(calls=1, samples_s=(1e-3 * factor * math.exp(number),) * 8),
            )
            for number in range(3)
            for case in CASES
        ]

    lines = table(side(1.0), side(0.8))  # type: ignore[arg-type]
    assert "| compiled | 3 | 0.80x [0.80, 0.80] |" in lines
    assert "| speedup | 3 | 1.25x [1.25, 1.25] |" in lines
