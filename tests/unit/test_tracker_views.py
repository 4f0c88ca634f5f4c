"""Views: charts are to scale, causes are grouped, and sentences are correct."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.records.record import Arm, Wheel
from ivhl.tracker.charts import Chart, make_chart
from ivhl.tracker.compat import Support, compat_rows, format_speedup
from ivhl.tracker.project import State
from ivhl.tracker.spread import SHIPPED
from ivhl.tracker.views import compatibility_view, page_view, rows_of
from ivhl.tracker.wording import memory, seconds, support_sentence
from ivhl.workload import load_workloads
from tests.builders.history import COMPILER_ERROR, history
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from ivhl.records.record import RunRecord

WORKLOADS = load_workloads("benchmarks")
COMMITS = ("a" * 40, "b" * 40)


def chart_of(*speedups: float | None, width: float = 0.02) -> Chart:
    records = [
        make_failure(torch=f"2.{i}.0")
        if speedup is None
        else make_record(torch=f"2.{i}.0", speedup=speedup, width=width)
        for i, speedup in enumerate(speedups)
    ]
    rows = compat_rows(records)
    return make_chart("c", rows[0].series, rows, dict.fromkeys(rows, "x"))


@given(st.lists(st.floats(0.02, 500), min_size=1, max_size=6), st.floats(0, 0.9))
def test_every_mark_is_inside_its_chart(speedups: list[float], width: float) -> None:
    chart = chart_of(*speedups, width=width)
    for line in chart.lines:
        for point in line.points:
            assert chart.left <= point.x <= chart.right
            assert chart.top <= point.high_y <= point.y <= point.low_y <= chart.bottom
    assert chart.top <= chart.one_y <= chart.bottom
    assert 1 <= len(chart.ticks) <= 9
    assert all(chart.top <= tick.at <= chart.bottom for tick in chart.ticks)


def test_the_axis_is_logarithmic_and_higher_is_faster() -> None:
    chart = chart_of(0.5, 1.0, 2.0, width=0)
    half, one, two = (point.y for point in chart.lines[0].points)
    assert half > one > two
    assert half - one == pytest.approx(one - two, abs=0.2)
    assert one == chart.one_y


def test_the_axis_does_not_magnify_noise() -> None:
    chart = chart_of(1.0, 1.005, width=0.0)
    low, high = (point.y for point in chart.lines[0].points)
    assert abs(low - high) < (chart.bottom - chart.top) / 10


def test_no_line_is_drawn_across_a_failure() -> None:
    chart = chart_of(2.0, 2.1, None, 2.2, 2.3)
    assert re.sub(r"[\d. ]", "", chart.lines[0].path) == "MLML"
    assert [gone.label for gone in chart.missing] == ["Python 3.12, PyTorch 2.2.0: unsupported"]
    assert "1 of 5 have no speedup" in chart.description


def test_the_table_equals_the_chart() -> None:
    chart = chart_of(2.0, None, 0.5)
    fast, slow = (SHIPPED.another_run(make_record(speedup=value)) for value in (2.0, 0.5))
    assert fast is not None
    assert slow is not None
    assert chart.table[0].texts == (
        format_speedup(fast),
        "unsupported",
        f"{format_speedup(slow)}, slow",
    )


def test_cases_with_equal_failures_are_one_cause() -> None:
    state = State(
        name="demo",
        records=tuple(history(COMMITS)),
        problems=(),
        cells=(),
        releases=None,
        unavailable={},
        workloads=(),
        cases=(),
        commit_order=COMMITS,
    )
    view = compatibility_view(state, rows_of(state), page_view(state, "now"))
    causes = {cause.message: cause for cause in view.causes}
    assert len(causes["Dynamo is not supported on Python 3.14+"].cases) == 16
    assert len(causes["Dynamo is not supported on Python 3.13+"].cases) == 8
    (compiler,) = [cause for cause in view.causes if cause.failure_class == "backend_compile"]
    assert "Python.h: No such file" in compiler.message
    assert "TORCHDYNAMO_VERBOSE" not in compiler.message
    reasons = {reason.id: reason for reason in view.reasons}
    assert all(href in reasons for cause in view.causes for _, href in cause.cases)
    assert reasons[compiler.cases[0][1]].message == COMPILER_ERROR
    # The newest commit is first, the older one below.
    fallen = reasons["py3.12-torch2.9.1/ops.gp_evolve/small/real-compiled/bench/cpu"]
    assert fallen.text.startswith("1.20x")
    assert [past.text[:5] for past in fallen.past] == ["1.20x", "2.15x"]


@pytest.mark.parametrize(
    ("good", "bad", "since", "sentence"),
    [
        (None, None, None, "nothing decided yet"),
        ("2.4.1", None, "2.4.1", "good in every release tried, since 2.4.1"),
        (None, "2.5.1", None, "no good release; last bad 2.5.1 (wrong)"),
        ("2.6.0", "2.5.1", "2.6.0", "first good 2.6.0; last bad 2.5.1 (wrong)"),
        ("2.4.1", "2.9.1", None, "first good 2.4.1; bad again: 2.9.1 (wrong)"),
        (
            "2.4.1",
            "2.5.1",
            "2.6.0",
            "first good 2.4.1; last bad 2.5.1 (wrong); good again since 2.6.0",
        ),
    ],
)
def test_support_is_one_sentence(
    good: str | None, bad: str | None, since: str | None, sentence: str
) -> None:
    (row,) = compat_rows([make_record()])
    found = Support(
        series=row.series,
        python="3.12",
        first_good=good,
        last_bad=bad,
        last_bad_status="wrong" if bad else None,
        good_since=since,
    )
    assert support_sentence(found) == sentence


def test_quantities_carry_their_unit() -> None:
    assert [seconds(s) for s in (31.0, 6.4, 1.2e-3, 4.6e-5, 3e-9)] == [
        "31 s",
        "6.4 s",
        "1.2 ms",
        "46 µs",
        "3 ns",
    ]
    assert [memory(n) for n in (12, 48 << 20, 3 << 30)] == ["12 B", "48 MiB", "3 GiB"]


def test_a_speedup_from_a_slower_eager_is_reported_as_such() -> None:
    old = make_record(torch="2.6.0", speedup=6.0)
    assert old.eager is not None
    slow = Arm(calls=1, samples_s=tuple(5 * s for s in old.eager.samples_s))
    new = make_record(torch="2.15.0", speedup=30.0, eager=slow, compiled=old.compiled)
    rows = compat_rows([old, new])
    chart = make_chart("c", rows[0].series, rows, dict.fromkeys(rows, ""))
    assert chart.changes == (
        "Python 3.12, PyTorch 2.6.0 to 2.15.0: eager 5.0 times slower, compiled about the same",
    )
    same = compat_rows([old, make_record(torch="2.15.0", speedup=6.0)])
    assert make_chart("c", same[0].series, same, dict.fromkeys(same, "")).changes == ()


def test_retired_cases_are_named_and_have_no_matrix() -> None:
    records = (*history(COMMITS), make_record(variant="gone"))
    state = State(
        name="demo",
        records=records,
        problems=(),
        cells=(),
        releases=None,
        unavailable={},
        workloads=WORKLOADS,
        cases=(),
        commit_order=COMMITS,
    )
    view = compatibility_view(state, rows_of(state), page_view(state, "now"))
    assert view.retired == ("ops.gp_evolve/small/gone (version 1)",)
    shown = {matrix.variant for workload in view.workloads for matrix in workload.matrices}
    assert shown == {"naive-compiled", "real-compiled"}


def test_seconds_of_two_instruments_are_not_compared() -> None:
    before, after = make_record(torch="2.6.0"), make_record(torch="2.15.0")
    eager = replace(after.eager or Arm(calls=1, samples_s=()), samples_s=(1.0, 1.0, 1.0))
    after = replace(after, eager=eager)

    def changes(*records: RunRecord) -> tuple[str, ...]:
        rows = compat_rows(records)
        return make_chart("chart", rows[0].series, rows, dict.fromkeys(rows, "x")).changes

    assert len(changes(before, after)) == 1
    other = replace(after, conditions=replace(after.conditions, instrument="another"))
    assert changes(before, other) == ()


def test_a_reason_shows_wheels_and_sources() -> None:
    wheel = Wheel(name="torch", version="2.6.0", build="1", tags=("any",), record_sha256="ab" * 32)
    record = make_record(sources="cd" * 32)
    conditions = replace(record.conditions, wheels=(wheel,), gil=False)
    facts = facts_of(replace(record, conditions=conditions))
    assert facts["torch wheel"] == "build 1, any, files abababababab"
    assert facts["global interpreter lock"] == "off"
    assert facts["sources that the case reaches"] == "cdcdcdcdcdcd"
    assert {"torch wheel", "global interpreter lock"} & set(facts_of(make_record())) == set()


def facts_of(record: RunRecord) -> dict[str, str]:
    """Return the page's facts about a record, by label."""
    state = State(
        name="demo",
        records=(record,),
        problems=(),
        cells=(),
        releases=None,
        unavailable={},
        workloads=(),
        cases=(),
        commit_order=COMMITS,
    )
    (reason,) = compatibility_view(state, rows_of(state), page_view(state, "now")).reasons
    return {fact.label: fact.value for group in reason.groups for fact in group.facts}


def test_variants_that_do_not_compile_are_not_called_compiled() -> None:
    compiled = make_record()
    assert compiled.compile is not None
    nothing = replace(
        compiled.compile, warm_s=None, frames_total=None, frames_ok=None, graphs=None,
        calls_captured=None, graph_breaks=(), recompiles=(),
    )  # fmt: skip
    of = {
        engine: facts_of(replace(compiled, engine=engine, compile=nothing))
        for engine in ("torchscript", "eager", "aotinductor", "later")
    }
    told = facts_of(compiled)
    assert {"cold compile, with one run", "compiled, median call", "graphs"} <= told.keys()
    assert told["engine"] == "torch.compile"
    for engine, facts in of.items():
        assert not {"graphs", "frames compiled"} & facts.keys(), engine
        assert ("warm compile, cache on disk" in facts) == (engine == "aotinductor")
        assert ("compiled, median call" in facts) == (engine == "aotinductor")
    assert "trace, with warm-up runs" in of["torchscript"]
    assert "export, cold compile and load, with one run" in of["aotinductor"]
    assert of["eager"]["engine"] == "eager: nothing is compiled"
    assert of["later"]["engine"] == "later"  # from a newer ivhl
