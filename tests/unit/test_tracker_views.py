"""Views: intervals have holes, means are matched, sentences say what records show."""

from __future__ import annotations

import json
import math
import unicodedata
from dataclasses import replace
from itertools import pairwise, product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ivhl.pages.render import render
from ivhl.records.reader import read_record
from ivhl.records.record import Arm, Calibration, Kernels, Wheel, to_json
from ivhl.tracker.changes.steps import QUANTITIES, find_steps, of_one_code
from ivhl.tracker.store.course import short, short_all
from ivhl.tracker.store.entries import recorded
from ivhl.tracker.store.spread import SHIPPED
from ivhl.tracker.support.compat import compat_rows
from ivhl.tracker.support.spans import spans, spans_of, spans_sentence
from ivhl.tracker.views.case import MOST_TEXT, case_view, cell_details, cut
from ivhl.tracker.views.environment import environment_views
from ivhl.tracker.views.facts import fact_groups
from ivhl.tracker.views.front import front_view, supported
from ivhl.tracker.views.incidents import incident_view, regressions_view
from ivhl.tracker.views.matrix import MOST_CELLS, matrix_views
from ivhl.tracker.views.project import State
from ivhl.tracker.views.run import run_lines, run_view
from ivhl.tracker.views.source import Source, View, slug
from ivhl.tracker.wording import memory, seconds, times
from ivhl.workload import load_workloads
from tests.builders.history import SPEEDUPS, history
from tests.builders.records import make_failure, make_record
from tests.builders.site import parse_expectations

if TYPE_CHECKING:
    from ivhl.records.record import RunRecord

WORKLOADS = load_workloads("benchmarks")
COMMITS = ("a" * 40, "b" * 40)
RELEASES = tuple(f"2.{minor}.0" for minor in range(8))


def source_of(*records: RunRecord, **changes: Any) -> Source:  # noqa: ANN401  (fields of the state)
    state = State(
        name="demo",
        recorded=tuple(map(recorded, records)),
        problems=(),
        cells=(),
        releases=None,
        unavailable={},
        workloads=(),
        cases=(),
        commit_order=COMMITS,
    )
    return Source(replace(state, **changes), "now")


def cells_of(*records: RunRecord) -> dict[str, View]:
    """Return the cells of the only case, by release."""
    source = source_of(*records)
    (matrix,) = matrix_views(source, source.page.main)
    (line,) = (line for group in matrix.groups for line in group.lines)
    return dict(zip((torch for _, torch, _ in matrix.columns), line.cells, strict=True))


@given(st.dictionaries(st.sampled_from(RELEASES), st.sampled_from(["works", "wrong"])))
def test_every_release_is_in_one_interval_with_its_word(words: dict[str, str]) -> None:
    found = spans(words, RELEASES)
    assert {torch: one.word for one in found for torch in one.tried} == words
    assert sum(len(one.tried) for one in found) == len(words)
    skipped = [torch for one in found for torch in one.skipped]
    assert not words.keys() & set(skipped)
    assert len(skipped) == len(set(skipped))
    # Neighbours differ: what belongs together is one interval.
    assert all(a.word != b.word for a, b in pairwise(found))
    # An interval names as skipped every release between its ends that was not run.
    for one in found:
        inside = RELEASES[RELEASES.index(one.tried[0]) : RELEASES.index(one.tried[-1]) + 1]
        assert {*one.tried, *one.skipped} == set(inside)


def test_a_candidate_is_in_no_interval_of_releases() -> None:
    releases = ("2.15.0", "2.16.0rc1", "2.16.0rc2", "2.16.0", "2.17.0.dev20261101")
    assert spans_sentence(spans(dict.fromkeys(releases, "works"))) == (
        "works 2.15.0 to 2.16.0, works 2.16.0rc1 to 2.16.0rc2, works 2.17.0.dev20261101"
    )


def test_support_is_said_in_intervals_with_holes() -> None:
    records = [
        make_record(torch="2.4.1"),
        make_record(torch="2.8.0"),
        make_failure("backend_compile", torch="2.9.1"),
        make_record(torch="2.10.0"),
    ]
    known = ("2.4.1", "2.5.1", "2.8.0", "2.9.1", "2.10.0")
    text = spans_sentence(spans_of(compat_rows(records), known))
    assert (
        text
        == "works 2.4.1 to 2.8.0 (2.5.1 was not run), fails (backend compile) 2.9.1, works 2.10.0"
    )
    assert spans_sentence(()) == "not run"


def test_the_front_page_says_what_works_where() -> None:
    front = front_view(source_of(*history(COMMITS)), source_of(*history(COMMITS)).page.main)
    assert dict(front.supported) == {
        "3.12": "works 2.4.1 to 2.5.1, works (1 of 4 wrong) 2.6.0, works 2.8.0 to 2.9.1",
        "3.13": "unsupported 2.4.1 to 2.5.1, works (1 of 4 fail) 2.6.0, works 2.8.0 to 2.9.1",
        "3.14": "unsupported 2.4.1 to 2.8.0, works 2.9.1",
    }
    assert front.newest == "2.9.1"
    assert [python for python, _ in front.worth] == ["3.12", "3.13", "3.14"]


def test_a_mean_is_over_the_cases_that_pass_in_every_cell_with_a_mean() -> None:
    source = source_of(*history(COMMITS))
    front = front_view(source, source.page.main)
    at = {line.python: dict(zip(front.releases, line.cells, strict=True)) for line in front.lines}
    # mlff.energy_forces fails with 2.6.0 on 3.12, so no mean has it.
    assert front.matched == 3
    cell = at["3.12"]["2.8.0"]
    assert cell is not None
    three = [
        speedups[3]
        for (workload, _), speedups in SPEEDUPS.items()
        if workload != "mlff.energy_forces"
    ]
    # real-compiled has 2.15 with every release but the newest; 2.8.0 is the fourth.
    assert cell.worth == times(math.prod(three) ** (1 / 3))
    assert cell.word == "4 of 4 pass"
    gated = at["3.14"]["2.4.1"]
    assert gated is not None
    assert (gated.word, gated.worth) == ("all unsupported", "")


def test_a_broken_case_does_not_raise_the_mean() -> None:
    old = [
        make_record(torch="2.5.1", workload="ops.a", speedup=4.0),
        make_record(torch="2.5.1", workload="ops.b", speedup=1.0),
    ]
    new = [make_record(workload="ops.a", speedup=4.0), make_failure("crash", workload="ops.b")]
    source = source_of(*old, *new)
    front = front_view(source, source.page.main)
    (line,) = front.lines
    assert front.matched == 1
    assert [cell.worth if cell else None for cell in line.cells] == ["4.00x", "4.00x"]


def test_the_speedup_of_a_cell_is_one_number_wherever_it_is_said() -> None:
    """3.14 with 2.15.0 was 3.70x in `ivhl advise`, 3.67x above the grid and 4.39x in it."""
    old = [make_record(torch="2.5.1", workload="ops.a", speedup=4.0)]
    old += [make_failure("crash", torch="2.5.1", workload="ops.b")]
    new = [make_record(workload="ops.a", speedup=4.0), make_record(workload="ops.b", speedup=0.25)]
    source = source_of(*old, *new)
    front = front_view(source, source.page.main)
    ((_, worth),) = front.worth
    text = "mean speedup over eager is 4.00x, for the 1 case that passes in all compared cells"
    assert str(worth).endswith(text)
    assert front.advice is not None
    assert front.advice.worth == worth
    assert [cell.worth for line in front.lines for cell in line.cells if cell] == ["4.00x"] * 2
    assert front.matched == 1


def test_a_case_that_is_slow_since_its_calls_are_short_is_named_as_that() -> None:
    """A suite of small cases was "0.42x as fast as eager", as if its kernels were bad."""
    short, long = (Arm(calls=10, samples_s=(s,) * 8) for s in (9e-6, 9e-4))
    made = make_record(speedup=0.4, width=0.001)
    records = [
        replace(made, eager=eager, workload=f"ops.w{n}") for n, eager in enumerate((short, long))
    ]
    source = source_of(*records)
    ((_, worth),) = front_view(source, source.page.main).worth
    assert str(worth).startswith(
        "2 of 2 cases pass, 2 of them slower than eager, 1 in calls of less than 50 µs, "
        "where calling compiled code decides and its kernels do not.\nThe mean speedup over eager "
        "is 0.40x, for the 2 cases"
    )


def test_the_front_page_compares_pythons_as_advise_does() -> None:
    records = [
        make_record(python=python, workload=f"ops.w{i}")
        for i in range(5)
        for python in ("3.12", "3.13")
    ]
    source = source_of(*records)
    advice = front_view(source, source.page.main).advice
    assert advice is not None
    (reason,) = advice.reasons
    assert reason.startswith("On average, speedups on 3.13 are 1.00 [")
    assert reason.endswith("] times those on 3.12 (5 comparable cases).")


def test_a_cell_that_is_below_one_in_this_run_only_says_so() -> None:
    # The 95 % interval lies below 1, that of the verdict does not.
    value = next(
        v
        for v in (1 - i / 1000 for i in range(300))
        if (found := SHIPPED.another_run(make_record(speedup=v))) and found.high < 1
    )
    cells = cells_of(make_record(speedup=value))
    assert (cells["2.6.0"].status, cells["2.6.0"].word) == ("noisy", "too noisy")
    assert cells_of(make_record(speedup=1.0))["2.6.0"].status == "works"
    assert cells_of(make_record(speedup=0.3))["2.6.0"].status == "slow"


def test_works_is_not_said_to_be_as_fast_as_eager() -> None:
    """An interval that reaches below 1 is not one that excludes a slowdown."""
    source = source_of(make_record(speedup=1.0))
    (row,) = source.rows
    assert row.status == "works"
    assert row.speedup_low is not None
    assert row.speedup_low < 1
    meaning = cell_details(source, row)["meaning"]
    assert meaning.startswith("runs and agrees with its reference; was not shown to be slower")
    assert "no slower than" not in meaning


def test_what_speaks_for_a_cell_is_what_was_measured_beside_it() -> None:
    def why(*records: RunRecord) -> str:
        source = source_of(*records)
        front = front_view(source, source.page.main)
        assert front.advice is not None
        assert (front.advice.python, front.advice.torch) == ("3.12", "2.6.0")
        return str(front.why)

    alone = make_record()
    older = make_record(python="3.13", torch="2.5.1")
    assert why(alone) == why(alone, older) == "no other Python was run with it"
    gated = make_failure(python="3.13")
    assert why(alone, gated) == "on no other Python does a case pass"
    beside = replace(make_record(python="3.11"), speedup=alone.speedup)
    assert why(alone, beside).startswith("no case was shown to fail")
    # Each costs something: 3.13 a case, 3.12 another one.
    both = [make_record(python=p, workload="ops.b") for p in ("3.12", "3.13")]
    fails = make_failure("crash", python="3.13")
    slow = [
        make_record(python="3.12", workload="ops.c", speedup=0.5),
        make_record(python="3.13", workload="ops.c", speedup=4.0),
    ]
    text = why(alone, fails, *both, *slow)
    assert "slower on 3.12 than on 3.13: ops.c" in text
    assert text.endswith("but on no other Python do more cases pass")


def test_the_front_page_of_a_place_says_what_changed_there() -> None:
    """What another machine measured says nothing of this one."""
    records = list(history(COMMITS))
    quiet = [
        replace(
            r, machine=replace(r.machine, name="quiet"), recorded_at="2026-12-01T00:00:00+00:00"
        )
        for r in records
        if r.commit == COMMITS[0] and r.cell.id == "py3.12-torch2.9.1"
    ]
    source = source_of(*records, *quiet)
    fronts = {place.machine: front_view(source, place) for place in source.page.places}
    assert fronts["quiet"].last is None
    assert fronts["quiet"].findings == ()
    last = fronts["bench"].last
    assert last is not None
    assert last.counts == "3 slower in 1 case"
    assert fronts["bench"].n_incidents == fronts["quiet"].n_incidents == len(source.incidents)


def test_a_change_over_releases_that_were_not_run_says_so() -> None:
    """Any of them may be the one that changed it."""
    known = ("2.4.1", "2.5.1", "2.6.0", "2.8.0", "2.9.1")

    def between(*torches: str, speedups: tuple[float, ...] = (4.0, 1.0)) -> list[str]:
        records = [
            make_record(torch=torch, speedup=speedup, width=0.001)
            for torch, speedup in zip(torches, speedups, strict=True)
        ]
        source = source_of(*records, known_releases=known)
        return [one.between for one in regressions_view(source).incidents]

    assert between("2.4.1", "2.5.1") == [""]
    assert between("2.4.1", "2.6.0") == ["2.5.1, between them, was not run with this code"]
    three = ["3 releases between them were not run with this code"]
    assert between("2.4.1", "2.9.1") == three
    records = [make_record(), make_record(python="3.14", speedup=0.5, width=0.001)]
    others = make_record(python="3.13", workload="ops.other")
    (one,) = regressions_view(source_of(*records, others)).incidents
    assert one.title == "Python 3.12 → 3.14 on PyTorch 2.6.0"
    assert one.between == "3.13, between them, was not run with this code"


def test_a_fall_between_releases_is_visible() -> None:
    cells = cells_of(make_record(torch="2.5.1", speedup=2.89), make_record(speedup=1.93))
    assert (cells["2.6.0"].move, cells["2.6.0"].was) == ("down", "2.89x")
    assert cells["2.5.1"].move == ""
    near = cells_of(make_record(torch="2.5.1", speedup=2.0), make_record(speedup=1.99))
    assert near["2.6.0"].move == ""


def test_a_move_is_said_beside_a_release_and_not_beside_its_candidate() -> None:
    cells = cells_of(
        make_record(torch="2.5.1", speedup=2.89),
        make_record(torch="2.6.0rc1", speedup=1.92),
        make_record(torch="2.6.0", speedup=1.93),
    )
    assert [cells[torch].was for torch in ("2.6.0rc1", "2.6.0")] == ["2.89x", "2.89x"]


def test_a_move_is_not_said_of_neighbours_that_cannot_be_compared() -> None:
    before, after = make_record(torch="2.5.1", speedup=2.89), make_record(speedup=1.93)
    other = replace(after, conditions=replace(after.conditions, threads=4))
    assert cells_of(before, after)["2.6.0"].move == "down"
    assert cells_of(before, other)["2.6.0"].move == ""


def test_a_failure_between_two_releases_is_no_step_over_it() -> None:
    cells = cells_of(
        make_record(torch="2.4.1", speedup=3.0),
        make_failure("crash", torch="2.5.1"),
        make_record(speedup=1.0),
    )
    assert cells["2.6.0"].move == ""


def test_a_matrix_is_divided_where_it_would_be_too_large() -> None:
    records = [
        make_record(torch=f"2.{i}.0", workload=f"ops.w{j}") for i in range(60) for j in range(100)
    ]
    source = source_of(*records, commit_order=())
    views = matrix_views(source, source.page.main)
    assert [view.href for view in views] == ["matrix.html", "matrix-2.html"]
    assert all(100 * len(view.columns) <= MOST_CELLS for view in views)
    assert sum(len(view.columns) for view in views) == 60
    assert views[0].releases[-1] == "2.59.0"


def test_a_curve_breaks_where_neighbours_cannot_be_compared_and_has_gaps() -> None:
    other = make_record(torch="2.8.0")
    records = [
        make_record(torch="2.4.1"),
        make_failure("crash", torch="2.5.1"),
        make_record(torch="2.6.0"),
        replace(other, conditions=replace(other.conditions, threads=4)),
    ]
    source = source_of(*records, known_releases=("2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0"))
    (series,) = source.by_series
    view = case_view(source, series)
    (line,) = view.curves["lines"]
    assert view.curves["x"] == ["2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0"]
    assert [value is None for value in line["speedup"]] == [False, True, False, True, False]
    assert line["marks"] == [4]
    assert view.breaks == ("Python 3.12, before 2.8.0: threads 1 before, 4 now",)


def test_the_newest_release_of_each_python_is_the_first_column() -> None:
    source = source_of(*history(COMMITS))
    newest = ["2.9.1", "2.8.0", "2.6.0", "2.5.1", "2.4.1"]
    assert list(front_view(source, source.page.main).releases) == newest
    (matrix,) = matrix_views(source, source.page.main)
    assert [(python, torch) for python, torch, _ in matrix.columns] == [
        (python, torch) for python in ("3.12", "3.13", "3.14") for torch in newest
    ]
    view = case_view(source, next(iter(source.by_series)))
    assert list(view.releases) == newest
    assert view.curves["x"] == newest[::-1]  # a curve runs from left to right


def test_runs_that_are_in_no_step_are_named_on_the_pages_as_in_the_terminal() -> None:
    quiet = Calibration(code_s=(5e-5,), memory_s=(6e-4,))
    record = make_record(torch="2.6.0")
    loud = replace(record, size="n8", calibration=replace(quiet, code_s=(9e-5,)))
    others = [replace(record, size=f"n{n}", calibration=quiet) for n in range(8)]
    source = source_of(*others, loud)
    name = f"{record.workload}/n8/{record.variant} in py3.12-torch2.6.0"
    said = f"1 run was disturbed, by the calibration, and left out of steps in time: {name}"
    assert regressions_view(source).disturbed == said
    by_size = {series.size: case_view(source, series) for series in source.by_series}
    assert by_size["n8"].disturbed == said
    assert by_size["n1"].disturbed == ""
    assert regressions_view(source_of(*others)).disturbed == ""
    for template, view in (
        ("regressions.html", regressions_view(source)),
        ("case.html", by_size["n8"]),
    ):
        assert name in render(template, source.page, "a/b.html", view=view).decode()


def test_a_case_says_which_side_moved_and_whose_doing_it_is() -> None:
    records = []
    for python in ("3.12", "3.13"):
        for torch, speedup in (("2.5.1", 4.0), ("2.6.0", 4.0), ("2.7.1", 1.0)):
            records.append(make_record(python=python, torch=torch, speedup=speedup))
    source = source_of(*records)
    (series,) = source.by_series
    (step,) = case_view(source, series).steps
    expected = find_steps(of_one_code(source.entries), source.state.spreads)
    assert step.title == "PyTorch 2.6.0 → 2.7.1, on Python 3.12, 3.13"
    assert [text.partition(":")[0] for text in step.sides] == [
        f"{side} {expected[0].sides[side].word}" for side in QUANTITIES
    ]
    assert step.sides[1].startswith("compiled became slower: 4.00x [")
    assert step.whose == expected[0].whose


@pytest.mark.parametrize(("speedup", "steps"), [(3.0, 0), (1.0, 2)])
def test_a_contended_run_is_in_a_step_if_no_contention_explains_it(
    speedup: float, steps: int
) -> None:
    usual = Calibration(code_s=(5e-5,), memory_s=(6e-4,))
    loaded = replace(usual, code_s=(9e-5,))
    records = [
        replace(
            make_record(torch=f"2.{n}.0", speedup=speedup if n == 7 else 4.0),
            calibration=loaded if n == 7 else usual,
        )
        for n in range(4, 14)
    ]
    source = source_of(*records)
    (series,) = source.by_series
    assert len(case_view(source, series).steps) == steps


def test_what_pytorch_refuses_comes_after_what_concerns_the_case() -> None:
    records = [
        make_failure("support_gate", "Dynamo is not supported on Python 3.12+", torch="2.2.2"),
        make_failure("graph_break", "oops", torch="2.5.1"),
        make_record(torch="2.6.0"),
    ]
    text = "".join(
        '[[failure]]\npython = ""\ntorch = "<2.6"\nworkload = "*"\nreason = "r"\n'
        f'class = "{found}"\n'
        for found in ("support_gate", "graph_break")
    )
    source = source_of(*records, expectations=parse_expectations(text))
    (series,) = source.by_series
    classes = [entry.failure_class for entry, _, _ in case_view(source, series).expected]
    assert classes == ["graph_break", "support_gate"]


def test_details_have_the_seconds_that_are_compared_beside_the_median_of_all_calls() -> None:
    """One slow process of two moves the two numbers apart."""
    record = make_record()
    assert record.compiled is not None
    slow = replace(record.compiled, samples_s=(1e-4, 1e-4, 1e-4, 4e-4))
    assert record.eager is not None
    eager = replace(record.eager, samples_s=(1e-3,) * 4)
    facts = facts_of(replace(record, eager=eager, compiled=slow, rounds=(3, 1)))
    assert facts["compiled, median call"] == "100 µs"
    assert facts["compiled, mean of the processes' medians"] == "200 µs"


def test_details_have_the_history_of_the_cell_only() -> None:
    source = source_of(*history(COMMITS))
    row = next(
        r for r in source.rows if (r.cell, r.variant) == ("py3.12-torch2.9.1", "real-compiled")
    )
    found = cell_details(source, row)
    points = [json.loads(point) for point in source.points_of(source.course(row))]
    named = [dict(zip(found["history"]["fields"], point, strict=True)) for point in points]
    assert [point["commit"] for point in named] == ["aaaaaaaa", "bbbbbbbb"]
    assert [point["speedup"] for point in named] == [2.15, 1.2]
    assert found["text"].startswith("1.20x")
    assert set(found["samples"]) == {"eager", "again", "compiled"}


def test_long_texts_keep_their_beginning_and_end() -> None:
    text = "a" * MOST_TEXT + "b" * 80_000
    shown = cut(text)
    assert len(shown) < MOST_TEXT + 100
    assert shown.startswith("aaa")
    assert shown.endswith("bbb")
    assert "80000 characters left out" in shown
    assert cut("short") == "short"


def test_incidents_are_on_the_page_with_their_cause() -> None:
    source = source_of(*history(COMMITS))
    view = regressions_view(source)
    fallen = next(one for one in view.incidents if one.along == "commit" and one.worse)
    assert fallen.counts == "3 slower in 1 case"
    assert all(one.effect.startswith("speedup 2.15x to ") for one in fallen.changes)
    assert fallen.cause == ""
    assert len({one.id for one in view.incidents}) == len(view.incidents)


@pytest.mark.parametrize(
    ("notes", "cause"),
    [
        (["known.", "known.", "known."], "known."),
        (["", "known.", ""], "known (1 of 3 changes); cause of 2 not known"),
        (["one.", "two.", "one."], "one (2 of 3 changes); two (1 of 3 changes)"),
        (["", "", ""], ""),
    ],
)
def test_a_note_of_some_cases_is_no_cause_of_all(
    notes: list[str], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(*history(COMMITS))
    (fallen,) = (one for one in source.incidents if one.along == "commit" and one.worse)
    said = dict(zip(fallen.changes, notes, strict=True))
    monkeypatch.setattr("ivhl.tracker.changes.incidents.note_on", lambda change, _: said[change])
    assert incident_view(source, fallen).cause == cause


def test_what_is_fixed_says_how_it_failed_and_what_is_known_of_that() -> None:
    gate = "Dynamo is not supported on Python 3.13+"
    refused = make_failure("support_gate", message=gate, python="3.13", torch="2.5.1")
    source = source_of(refused, make_record(python="3.13", torch="2.6.0"))
    (one,) = regressions_view(source).incidents
    assert one.counts == "1 fixed"
    assert one.worst.endswith(f"; before: support_gate: {gate}")
    assert one.cause == "Up to PyTorch 2.5.1 Dynamo refuses Python 3.13 (pytorch/pytorch#144048)"


def test_a_cell_of_the_newest_release_is_the_first_of_the_menu() -> None:
    source = source_of(*history(COMMITS))
    series = next(row.series for row in source.rows if row.record is not None)
    texts = [text for *_, text in case_view(source, series).cells]
    assert texts[0] == "Python 3.14, PyTorch 2.9.1"
    assert texts[-1] == "Python 3.12, PyTorch 2.4.1"


def test_runs_and_environments_are_listed() -> None:
    source = source_of(*history(COMMITS))
    runs = run_lines(source)
    assert [run.commit[:1] for run in runs] == ["b", "a"]
    assert len(run_view(source, runs[0]).cells) == runs[0].cells == 15
    environments = {one.cell: one for one in environment_views(source)}
    assert len(environments) == 15
    found = environments["py3.12-torch2.6.0"]
    assert found.installed[0].packages == ("numpy==2.1.0", "torch==2.6.0", "triton==3.1.0")
    assert {n.cell for n in found.neighbours} == {
        "py3.12-torch2.5.1", "py3.12-torch2.8.0", "py3.13-torch2.6.0", "py3.14-torch2.6.0",
    }  # fmt: skip


def test_a_run_shows_two_environments_of_one_release_apart() -> None:
    record = make_record(workload="ops.a")
    other = make_record(workload="ops.b")
    other = replace(other, cell=replace(other.cell, id="existing-1", lock_sha256=None))
    source = source_of(record, other)
    (line,) = run_lines(source)
    shown = run_view(source, line).cells
    assert {(one.cell, one.counts) for one in shown} == {
        (record.cell.id, "1 measured"),
        ("existing-1", "1 measured"),
    }


def test_different_cases_have_different_file_names() -> None:
    assert slug("a", "b c") != slug("a", "b-c")
    assert slug("a/b", "c") != slug("a", "b/c")
    assert slug("a+b", "c") != slug("a", "b+c")
    assert len(slug("x" * 300)) <= 120
    assert slug("x" * 300) != slug("x" * 301)
    assert slug("\N{LATIN SMALL LETTER E WITH ACUTE}a") != slug("\u0e9a")


def test_ordinary_names_keep_their_file_names() -> None:
    """Links to pages go on working."""
    assert slug("vm-core1", "cpu") == "vm-core1+cpu"
    assert slug("ops.gp_evolve", "medium", "real-compiled") == "ops.gp_evolve+medium+real-compiled"
    assert slug("4 x 4", "a+b") == "4~20x~204+a~2bb"
    assert slug("py3.12-torch2.6.0", "2") == "py3.12-torch2.6.0+2"


# Letters that differ in size only, marks that are joined or not, and what escapes are made of.
ALIKE = st.text(
    st.sampled_from("aA\u00e9\u0301e~2b+0E\u0e9a\ufb01fi\u212aKk-._ \ud800/") | st.characters(),
    max_size=60,
)


@settings(max_examples=400)
@given(st.lists(st.lists(ALIKE, min_size=1, max_size=3).map(tuple), max_size=30, unique=True))
def test_no_two_texts_have_one_file_on_any_file_system(texts: list[tuple[str, ...]]) -> None:
    names = [unicodedata.normalize("NFKC", slug(*parts)).casefold() for parts in texts]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 120 for name in names)


def test_no_escape_is_the_beginning_of_another() -> None:
    names = {slug(chr(n)).casefold() for n in range(0x11000)}
    assert len(names) == 0x11000
    pairs = ["".join(p) for p in product("\x02ba9~+\u00e9\u0e9a\u0e9b\u00e0Z", repeat=3)]
    assert len({slug(pair).casefold() for pair in pairs}) == len(pairs)


@given(st.lists(st.text(), min_size=1, max_size=3))
def test_a_file_name_stays_in_its_folder(parts: list[str]) -> None:
    name = slug("p", *parts)
    assert set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~+")
    assert name not in (".", "..")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.314, "2.31x"),
        (0.05, "0.05x"),
        (1e-300, "1.0e-300x"),
        (1e308, "1.0e+308x"),
        (12345, "1.2e+04x"),
    ],
)
def test_a_factor_is_short_at_any_size(value: float, text: str) -> None:
    assert times(value) == text


@given(st.lists(st.floats(1e-12, 1e9)))
def test_many_numbers_are_shortened_as_one_is(values: list[float]) -> None:
    assert short_all(values) == [short(value) for value in values]


def test_retired_cases_are_named_and_have_no_line() -> None:
    source = source_of(*history(COMMITS), make_record(variant="gone"), workloads=WORKLOADS)
    (matrix,) = matrix_views(source, source.page.main)
    assert matrix.retired == ("ops.gp_evolve/small/gone (version 1)",)
    assert {line.variant for group in matrix.groups for line in group.lines} == {
        "naive-compiled", "real-compiled",
    }  # fmt: skip
    assert [group.subject for group in matrix.groups] == ["condensate", "field", "molecules"]


def test_quantities_carry_their_unit() -> None:
    assert [seconds(s) for s in (31.0, 6.4, 1.2e-3, 4.6e-5, 3e-9)] == [
        "31 s",
        "6.4 s",
        "1.2 ms",
        "46 µs",
        "3 ns",
    ]
    assert [memory(n) for n in (12, 48 << 20, 3 << 30)] == ["12 B", "48 MiB", "3 GiB"]


def test_a_reason_shows_wheels_and_sources() -> None:
    wheel = Wheel(name="torch", version="2.6.0", build="1", tags=("any",), record_sha256="ab" * 32)
    record = make_record(sources="cd" * 32)
    conditions = replace(record.conditions, wheels=(wheel,), gil=False)
    facts = facts_of(replace(record, conditions=conditions))
    assert facts["torch wheel"] == "build 1, any, files abababababab"
    assert facts["global interpreter lock"] == "off"
    assert facts["sources that the case reaches"] == "cdcdcdcdcdcd"
    assert {"torch wheel", "global interpreter lock"} & set(facts_of(make_record())) == set()


def test_the_page_of_a_case_on_a_gpu_has_its_kernels() -> None:
    kernels = Kernels(eager=30, compiled=1, eager_s=56e-6, compiled_s=4e-6)
    record = replace(make_record(), kernels=kernels)
    assert read_record(to_json(record).encode()).kernels == kernels
    facts = dict(fact_groups(record, SHIPPED)["Run on the GPU by a call"])
    assert facts == {"eager": "30 kernels, 56 µs", "compiled": "1 kernel, 4 µs"}
    assert "kernels" not in json.loads(to_json(make_record()))


def facts_of(record: RunRecord) -> dict[str, str]:
    """Return the page's facts about a record, by label."""
    return {
        label: value for facts in fact_groups(record, SHIPPED).values() for label, value in facts
    }


def test_outputs_are_called_judged_only_where_there_were_any() -> None:
    def facts(record: RunRecord) -> set[str]:
        return {label for facts in fact_groups(record, SHIPPED).values() for label, _ in facts}

    assert "outputs" in facts(make_record())
    assert "outputs" in facts(make_failure("wrong", phase="accuracy"))
    assert "outputs" not in facts(make_failure())


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


def test_a_python_of_which_nothing_was_tried_has_no_line_of_support() -> None:
    """Records of it on another machine bring its cells, of which some are unavailable."""
    rows = [
        SimpleNamespace(
            python=python, torch="2.15.0", status=status, engine="", passes=status == "works"
        )
        for python, status in (("3.14", "works"), ("3.14t", "unavailable"))
    ]
    source = SimpleNamespace(releases=lambda _: ("2.15.0",))
    found = supported(source, rows)  # type: ignore[arg-type]
    assert {python: spans_sentence(text) for python, text in found.items()} == {
        "3.14": "works 2.15.0"
    }
