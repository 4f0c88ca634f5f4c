"""Intervals for another run are learnt from repeated runs and have their coverage."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.tracker.store.entries import entry_of
from ivhl.tracker.store.metrics import within
from ivhl.tracker.store.spread import (
    CONFIDENCE,
    ENOUGH_PAIRS,
    SHIPPED,
    VERDICT_CONFIDENCE,
    CaseKind,
    Spreads,
    kind_of,
    repeats,
    shipped,
)
from studies.spread import coverage, spreads_by_length
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from ivhl.records.record import RunRecord


def runs_of(
    n_cases: int, n_runs: int, sigma: float, *, width: float = 0.01, seed: int = 0
) -> list[RunRecord]:
    """Return records of cases whose runs have the relative standard deviation ``sigma``."""
    draw = random.Random(seed)  # noqa: S311  (noise, not a secret)
    return [
        make_record(
            workload=f"ops.case{case}",
            speedup=(2.0 + case) * math.exp(draw.gauss(0, sigma)),
            width=width,
            recorded_at=f"2026-11-{1 + run:02}T12:00:00+00:00",
        )
        for case in range(n_cases)
        for run in range(n_runs)
    ]


def test_only_runs_under_equal_conditions_are_repeats() -> None:
    one = make_record()
    later = replace(one, recorded_at="2026-11-02T12:00:00+00:00")
    assert list(repeats([one, later])) == [(entry_of(one), entry_of(later))]
    assert not list(repeats([one, one]))  # the same line in two files
    assert not list(repeats([one, make_failure(recorded_at=later.recorded_at)]))
    for other in (
        replace(later, commit="f" * 40),
        replace(later, size="large"),
        replace(later, machine=replace(later.machine, name="other")),
        replace(later, cell=replace(later.cell, lock_sha256="cd" * 32)),
        replace(later, conditions=replace(later.conditions, threads=2)),
        replace(later, conditions=replace(later.conditions, instrument="1")),
    ):
        assert not list(repeats([one, other]))


def test_commits_with_equal_sources_are_repeats() -> None:
    one = make_record(sources="ab" * 32)
    later = replace(one, commit="f" * 40, recorded_at="2026-11-02T12:00:00+00:00")
    assert list(repeats([one, later])) == [(entry_of(one), entry_of(later))]
    # Copied to another commit without a measurement: not another run.
    assert not list(repeats([one, replace(one, commit="f" * 40, same_as=one.commit)]))


@pytest.mark.parametrize("sigma", [0.0, 0.01, 0.05, 0.2])
def test_the_learnt_spread_is_that_of_the_runs(sigma: float) -> None:
    records = runs_of(30, 10, sigma, width=0.001)
    fresh = make_record(workload="ops.new", width=0.001)
    spread = Spreads(records).of(fresh)  # has no past of its own
    assert spread.tau == pytest.approx(sigma, rel=0.15, abs=1e-3)
    assert "on bench" in spread.origin


def test_the_past_of_a_case_corrects_what_is_usual_for_its_kind() -> None:
    calm, wild = runs_of(30, 10, 0.01, width=0.001), runs_of(1, 10, 0.2, width=0.001, seed=1)
    records = [*calm, *(replace(record, workload="ops.wild") for record in wild)]
    spreads = Spreads(records)
    assert spreads.of(records[-1]).tau == pytest.approx(0.2, rel=0.5)
    assert spreads.of(calm[0]).tau < 0.05 < spreads.of(make_record(workload="ops.new")).tau * 2
    # Two runs say little.
    few = Spreads([*calm, *(replace(r, workload="ops.wild") for r in wild[:2])])
    assert few.of(records[-1]).tau < spreads.of(records[-1]).tau


@pytest.mark.parametrize(("sigma", "width"), [(0.02, 0.001), (0.05, 0.05), (0.0, 0.02)])
def test_the_interval_for_another_run_has_its_coverage(sigma: float, width: float) -> None:
    found = coverage(list(repeats(runs_of(40, 10, sigma, width=width))))
    assert found.pairs == 40 * 90
    assert found.another_run >= 0.93
    assert found.slower <= 0.02


def test_heavy_tails_keep_the_coverage() -> None:
    draw = random.Random(3)  # noqa: S311
    records = [
        replace(record, speedup=replace(record.speedup, value=value, low=value, high=value))
        for record in runs_of(40, 10, 0.0)
        if record.speedup
        for value in [2.0 * math.exp(0.02 * draw.gauss(0, 1) / math.sqrt(draw.gammavariate(1, 1)))]
    ]
    assert coverage(list(repeats(records))).another_run == pytest.approx(0.95, abs=0.02)


def test_with_few_runs_the_shipped_spread_is_used() -> None:
    few = runs_of(1, 4, 0.3)
    assert len(few) * 3 / 2 < ENOUGH_PAIRS
    fresh = make_record(workload="ops.new")
    assert Spreads(few).of(fresh) == shipped(kind_of(fresh))


def test_one_case_that_ran_often_says_nothing_of_others() -> None:
    often = runs_of(1, 12, 0.0)  # as a search over commits runs it
    assert len(often) * 11 / 2 > ENOUGH_PAIRS
    fresh = make_record(workload="ops.new")
    assert Spreads(often).of(fresh) == shipped(kind_of(fresh))
    assert Spreads(runs_of(3, 12, 0.0)).of(fresh) != shipped(kind_of(fresh))


@given(st.floats(0.1, 50), st.floats(0.001, 0.5))
def test_the_interval_for_another_run_contains_the_value(value: float, width: float) -> None:
    record = make_record(speedup=value, width=width)
    another = SHIPPED.another_run(record)
    verdict = SHIPPED.another_run(record, confidence=VERDICT_CONFIDENCE)
    assert another is not None
    assert verdict is not None
    assert another.low < value < another.high
    assert verdict.low <= another.low <= another.high <= verdict.high
    assert another.confidence == CONFIDENCE


def test_a_record_without_the_ratio_has_no_interval() -> None:
    assert SHIPPED.another_run(make_failure()) is None
    assert within(make_failure()) == 0.0


def test_an_instrument_without_repeats_uses_the_spread_of_all() -> None:
    known = kind_of(make_record())
    unknown = CaseKind("1", known.device, known.clock, known.length)
    assert shipped(unknown).scores.of(CONFIDENCE) > 0
    assert shipped(unknown) == shipped(unknown._replace(length="short"))


def test_shipped_spreads_depend_on_the_length_of_calls() -> None:
    found = spreads_by_length(list(repeats(runs_of(10, 5, 0.03))))
    assert "any" in found
    assert {spread.pairs for spread in found.values()} == {100}
