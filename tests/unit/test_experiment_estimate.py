"""How long runs of cases take, by records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ivhl.bench.experiment.estimate import AROUND_S, Estimate, duration_of_case, told
from tests.builders.records import make_record


def test_a_run_takes_what_its_processes_and_its_compilation_take() -> None:
    """Phases of ``ops.gp_evolve`` on ``vm-core1``, where two cases compiled on one core."""
    made = make_record()
    assert made.compile is not None
    facts = replace(made.compile, cold_s=16.0, warm_s=1.0)
    made = replace(
        made,
        duration_s=32.0,
        rounds=(12, 12),
        compile=facts,
        # Of two processes: 18 s compile, and both take 1 s more to read what was compiled.
        phase_s={"compile": 20.0, "accuracy": 1.0, "import": 2.0, "timing": 4.0, "waiting": 5.0},
    )
    assert duration_of_case(made, 4) == pytest.approx(19 + 2 + 4 * 3.0)
    assert duration_of_case(made, 4, 0.0) == pytest.approx(2 + 4 * 3.0)
    assert duration_of_case(made, 4, 0.5) == pytest.approx(9.5 + 2 + 4 * 3.0)


def test_each_run_has_what_it_takes_beside_its_cases() -> None:
    known = Estimate(10.0)
    assert known.runs_s(2) == 2 * (10 + AROUND_S)
    assert told("expected", 2, known) == "expected: 2 runs, of 22 s each by earlier records: 44 s"
