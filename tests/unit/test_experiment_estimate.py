"""How long runs of cases take, by records of busy machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ivhl.bench.experiment.estimate import AROUND_S, Duration, duration_of_case
from ivhl.records.record import Arm
from tests.builders.records import make_record


def test_what_the_record_waited_for_is_not_told_of_a_quiet_machine() -> None:
    """Phases of ``ops.gp_evolve`` on ``vm-core1``, where two cases compiled on one core."""
    made = make_record()
    assert made.compile is not None
    # Half of the time to compile, and a fifth of that to time, something else had the processor.
    facts = replace(made.compile, cold_s=16.0, cold_cpu_s=8.0, warm_s=1.0)
    arm = Arm(calls=1, samples_s=(0.8,), wall_s=(1.0,), cpu_s=(0.8,))
    made = replace(
        made,
        duration_s=32.0,
        rounds=(12, 12),
        compile=facts,
        eager=arm,
        eager_again=arm,
        compiled=arm,
        # Of two processes: 18 s compile, and both take 1 s more to read what was compiled.
        phase_s={"compile": 20.0, "accuracy": 1.0, "import": 2.0, "timing": 4.0, "waiting": 5.0},
    )
    assert duration_of_case(made, 4) == pytest.approx((9.5 + 2 + 4 * 2.6, 19 + 2 + 4 * 3.0))
    assert duration_of_case(made, 4, 0.0) == pytest.approx((2 + 4 * 2.6, 2 + 4 * 3.0))
    assert duration_of_case(made, 4, 0.5).beside_s == pytest.approx(9.5 + 2 + 4 * 3.0)


def test_threads_of_a_case_are_no_other_work() -> None:
    arm = Arm(calls=1, samples_s=(1.0,), wall_s=(1.0,), cpu_s=(0.8,))
    made = make_record()
    assert made.compile is not None
    made = replace(
        made,
        conditions=replace(made.conditions, clock="wall", threads=2),
        compile=replace(made.compile, cold_cpu_s=9.0),
        eager=arm,
        phase_s={"timing": 4.0},
    )
    assert duration_of_case(made, 2).alone_s == duration_of_case(made, 2).beside_s


def test_a_time_is_two_figures_where_they_differ() -> None:
    assert str(Duration(60.0, 90.0)) == "60 to 90 s"
    assert str(Duration(60.0, 7200.0)) == "60 s to 120 min"
    assert str(Duration(60.0, 61.0)) == "61 s"
    assert Duration(10.0, 20.0).runs(2) == (2 * (10 + AROUND_S), 2 * (20 + AROUND_S))
