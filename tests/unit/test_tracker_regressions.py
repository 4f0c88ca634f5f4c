"""What got worse is placed where it happened, and nothing is said of what did not change."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.cli.regressions import _line
from ivhl.errors import ResultsError, UnknownNameError
from ivhl.records.record import Arm, Calibration, Counted
from ivhl.tracker.changes.compare import compare
from ivhl.tracker.changes.incidents import counts_of_changes
from ivhl.tracker.changes.kinds import WORSE
from ivhl.tracker.changes.regressions import find_changes, incidents_of
from ivhl.tracker.changes.series import ALONG, series_of
from ivhl.tracker.store.course import MemoryHistory
from ivhl.tracker.store.entries import recorded
from ivhl.tracker.views.incidents import regressions_view
from ivhl.tracker.views.project import State
from ivhl.tracker.views.source import Source
from tests.builders.fleet import a_record, make_fleet_project, write_records
from tests.builders.history import note_change
from tests.builders.records import Known, make_failure, make_record, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.regressions import Change
    from ivhl.tracker.changes.series import Along
    from ivhl.tracker.store.entries import Entry

QUIET = Known(0.01)


def hash_of(n: int) -> str:
    return f"{n:040x}"


def at(n: int, record: RunRecord, **changes: Any) -> RunRecord:  # noqa: ANN401
    """Return the record at the n-th commit, which has sources of its own."""
    about = {"commit": hash_of(n), "recorded_at": f"2026-11-{n + 1:02}T00:00:00+00:00"}
    return replace(record, **{"sources": f"{n:064x}", **about, **changes})


def timed(eager_s: float, compiled_s: float) -> RunRecord:
    """Return a record of a machine whose speed is known."""
    eager, compiled = (Arm(calls=1, samples_s=(s,) * 16) for s in (eager_s, compiled_s))
    fixed = Calibration(code_s=(5e-5,), memory_s=(6e-4,))
    record = make_record(speedup=eager_s / compiled_s, width=0.001, calibration=fixed)
    return replace(record, eager=eager, compiled=compiled)


def broken(record: RunRecord) -> RunRecord:
    facts = record.compile
    assert facts is not None
    breaks = (*facts.graph_breaks, Counted(text="Tensor.item", count=2))
    return replace(record, compile=replace(facts, graph_breaks=breaks))


def along_commits(*records: RunRecord) -> list[Change]:
    """Return what is found in this history of one case."""
    history = [at(n, record) for n, record in enumerate(records)]
    order = [hash_of(n) for n in range(len(records))]
    return list(find_changes(MemoryHistory(history), QUIET, order, ["commit"]))


BASE = timed(2e-3, 1e-3)


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        (broken(BASE), "degraded"),
        (timed(4e-3, 2e-3), "slower"),  # both sides: the ratio hides it
        (timed(2e-3, 1.3e-3), "slower"),
        (timed(2e-3, 1.05e-3), "slower"),
        (timed(1e-3, 1e-3), None),  # eager got faster: pytorch/pytorch#195483
        (timed(2e-3, 1.001e-3), None),
        (timed(1e-2, 1e-3), "eager slower"),
        (timed(1e-2, 2e-3), "slower"),
        (make_failure("graph_break"), "fails"),
        (make_failure("unavailable"), None),
        (make_failure("timeout"), None),
        (timed(2e-3, 5e-4), "faster"),
    ],
)
def test_a_change_is_found_at_its_commit(after: RunRecord, kind: str | None) -> None:
    found = along_commits(BASE, BASE, after)
    assert [(c.kind, c.before, c.place) for c in found] == (
        [(kind, hash_of(1), hash_of(2))] if kind else []
    )


@pytest.mark.parametrize(
    ("n", "after", "line"),
    [
        *((n, timed(4e-3, 2e-3), "slower, compiled 2.00x  ") for n in (1, 6)),
        *((n, timed(2e-3, 2e-3), "slower, speedup 0.50x  ") for n in (1, 6)),
        *((n, timed(1e-2, 1e-3), "eager slower, eager 5.00x  ") for n in (1, 6)),
        (1, broken(BASE), "degraded, speedup 1.00x  "),
        (6, broken(BASE), "degraded  "),
    ],
)
def test_a_factor_is_printed_with_what_it_is_a_factor_of(
    n: int, after: RunRecord, line: str
) -> None:
    (found,) = along_commits(*[BASE] * n, *[after] * n)
    assert _line(found, "ops.one/small/a").startswith(line)


def test_eager_code_that_takes_longer_is_named_in_a_long_history_too() -> None:
    """Its speedup rises, and compiled code stays: PyTorch 2.7.1, complex exponential."""
    (found,) = along_commits(*[BASE] * 6, *[timed(1e-2, 1e-3)] * 6)
    assert (found.kind, found.place, found.state) == ("eager slower", hash_of(6), "persists")
    assert found.effect == pytest.approx(5.0)
    (incident,) = incidents_of([found])
    assert incident.worse
    # A compiled slowdown beside it decides.
    assert [one.kind for one in along_commits(*[BASE] * 6, *[timed(1e-2, 1.5e-3)] * 6)] == [
        "slower"
    ]
    # As much as eager seconds of another session differ by says nothing against it.
    assert along_commits(*[BASE] * 6, *[timed(2.2e-3, 1e-3)] * 6) == []


@pytest.mark.parametrize("n", [1, 6])  # neighbours; a long history, in which steps are looked for
def test_what_is_slower_on_both_sides_is_not_over_by_the_noise_of_its_speedup(n: int) -> None:
    slow = timed(2.6e-3, 1.3e-3)
    (found,) = along_commits(
        *[BASE] * n, *[slow] * n, timed(2.6e-3, 1.301e-3), timed(2.6e-3, 1.3e-3)
    )
    assert (found.kind, found.place, found.state) == ("slower", hash_of(n), "persists")
    (found,) = along_commits(*[BASE] * n, *[slow] * n, BASE)[:1]
    assert found.state == "over"


def test_compiled_code_is_still_slower_where_eager_code_got_slower_later() -> None:
    """The speedup is what it was, and neither side is."""
    history = [BASE, timed(2e-3, 2e-3), timed(4e-3, 2e-3)]
    states = {found.kind: found.state for found in along_commits(*history)}
    assert states == {"slower": "persists", "eager slower": "suspected"}


PLACES = ("2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0")


def on_3_12(cells: Mapping[str, Sequence[tuple[float, float]]]) -> list[Change]:
    """Return the changes along releases of Python 3.12, from milliseconds of each cell."""
    records = [
        replace(timed(eager / 1e3, compiled / 1e3), cell=record.cell)
        for python, seconds in cells.items()
        for torch, (eager, compiled) in zip(PLACES, seconds, strict=True)
        for record in [make_record(python=python, torch=torch)]
    ]
    found = find_changes(MemoryHistory(records), QUIET, along=["torch"])
    return [one for one in found if one.case.python == "3.12"]


FAST, SLOW, BOTH = (2.0, 1.0), (2.0, 1.3), (2.6, 1.3)
EAGER_LATER = (2.8, 1.3)


@pytest.mark.parametrize(
    ("here", "there", "state"),
    [
        # Compiled code alone.
        ([FAST, FAST, SLOW, SLOW, SLOW, SLOW], [FAST, FAST, SLOW, SLOW, SLOW, SLOW], "persists"),
        ([FAST, FAST, SLOW, SLOW, SLOW, FAST], [FAST, FAST, SLOW, SLOW, SLOW, FAST], "over"),
        ([FAST, FAST, SLOW, SLOW, SLOW, EAGER_LATER], [FAST] * 5 + [(2.8, 1.0)], "persists"),
        # Both sides, by code: of all Pythons, or of one.
        ([FAST, FAST, BOTH, BOTH, BOTH, BOTH], [FAST, FAST, BOTH, BOTH, BOTH, BOTH], "persists"),
        ([FAST, FAST, BOTH, BOTH, BOTH, BOTH], [FAST] * 6, "persists"),
        ([FAST, FAST, BOTH, BOTH, BOTH, FAST], [FAST, FAST, BOTH, BOTH, BOTH, FAST], "over"),
        # The newest run disturbed: of code that has recovered, and of code that has not.
        ([FAST, FAST, SLOW, SLOW, SLOW, (2.8, 1.4)], [FAST, FAST, SLOW, SLOW, SLOW, FAST], "over"),
        ([FAST, FAST, SLOW, SLOW, SLOW, (2.8, 1.82)], [FAST] * 6, "persists"),
        ([FAST, FAST, BOTH, BOTH, BOTH, (3.64, 1.82)], [FAST] * 6, "persists"),
        # Nothing says whether by code or by a neighbour: the seconds count.
        ([FAST, FAST, SLOW, SLOW, SLOW, (2.8, 1.4)], None, "persists"),
    ],
)
def test_a_disturbed_newest_run_decides_nothing_where_other_cells_show_no_change(
    here: list[tuple[float, float]], there: list[tuple[float, float]] | None, state: str
) -> None:
    """``ops.mera_layer`` on 3.12: eager 216 to 306 µs, with 2.15.0 alone."""
    cells = {"3.12": here} | ({"3.13": there, "3.14": there} if there else {})
    found = next(one for one in on_3_12(cells) if one.place == "2.7.1")
    assert (found.kind, found.state) == ("slower", state)
    is_disturbed = there is not None and here[-1] in ((2.8, 1.4), (2.8, 1.82), (3.64, 1.82))
    assert (
        "1.40x slower on both sides, which no other cell shows" in found.reason
    ) == is_disturbed


def loud(record: RunRecord, factor: float) -> RunRecord:
    """Return the record with a calibration that took longer by a factor, and nothing else."""
    return replace(record, calibration=Calibration(code_s=(5e-5 * factor,), memory_s=(6e-4,)))


def test_a_disturbed_run_does_not_move_a_step_to_its_neighbour() -> None:
    """``ops.condensate_energy``: slower from 2.9.1 on, and 2.7.1 was disturbed."""
    slow = timed(2e-3, 1.25e-3)
    history = [*[BASE] * 5, loud(BASE, 1.6), BASE, *[slow] * 6]
    assert [(one.kind, one.place) for one in along_commits(*history)] == [("slower", hash_of(7))]
    # Nor does one that is as slow as what follows hide it: the step is behind the last quiet one.
    history = [*[BASE] * 6, loud(timed(4e-3, 3e-3), 1.6), *[slow] * 6]
    (found,) = along_commits(*history)
    assert (found.kind, found.before, found.place) == ("slower", hash_of(5), hash_of(7))
    # It is no later point that shows the old level, either.
    (found,) = along_commits(*[BASE] * 7, *[slow] * 6, loud(BASE, 1.6))
    assert found.state == "persists"


def test_the_page_shows_the_speedups_of_the_quiet_runs_around_a_disturbed_one() -> None:
    records = [*[BASE] * 6, loud(timed(4e-3, 3e-3), 1.6), *[timed(2e-3, 1.25e-3)] * 6]
    state = State(
        name="demo",
        recorded=tuple(recorded(at(n, record)) for n, record in enumerate(records)),
        problems=(),
        cells=(),
        releases=None,
        unavailable={},
        workloads=(),
        cases=(),
        commit_order=tuple(hash_of(n) for n in range(len(records))),
    )
    (incident,) = regressions_view(Source(state, "now")).incidents
    (change,) = incident.changes
    assert change.effect == "speedup 2.00x to 1.60x"


def test_a_commit_of_the_same_code_as_a_disturbed_one_is_named_in_its_place() -> None:
    """The last run of the old code is the quiet one before both."""
    slow = timed(2e-3, 1.25e-3)
    history = [at(n, BASE) for n in range(6)]
    history += [at(6, loud(slow, 1.6), sources="c" * 64), at(7, slow, sources="c" * 64)]
    history += [at(n, slow) for n in range(8, 13)]
    order = [hash_of(n) for n in range(13)]
    (found,) = find_changes(MemoryHistory(history), QUIET, order, ["commit"])
    assert (found.before, found.place) == (hash_of(5), hash_of(7))


def test_in_a_short_history_neighbours_of_a_disturbed_run_are_judged() -> None:
    quiet = [at(n % 3, BASE, variant=f"v{n // 3}-compiled") for n in range(9)]
    disturbed = loud(timed(4e-3, 3e-3), 1.6)
    history = [at(0, BASE), at(1, disturbed), at(2, timed(2e-3, 1.5e-3)), *quiet]
    order = [hash_of(n) for n in range(3)]
    (found,) = find_changes(MemoryHistory(history), QUIET, order, ["commit"])
    assert (found.kind, found.before, found.place) == ("slower", hash_of(0), hash_of(2))
    # What has no noise is listed at the disturbed run itself, and once.
    history[1] = at(1, broken(disturbed))
    history[2] = at(2, broken(timed(2e-3, 1.5e-3)))
    found_all = find_changes(MemoryHistory(history), QUIET, order, ["commit"])
    assert [(one.kind, one.place) for one in found_all] == [("degraded", hash_of(1))]


@pytest.mark.parametrize("n", [2, 12])
@pytest.mark.parametrize("after", [timed(2e-3, 1.5e-3), timed(2e-3, 1e-3), make_failure("wrong")])
def test_a_verdict_among_runs_with_seconds_moves_nothing(n: int, after: RunRecord) -> None:
    plain = {
        place: at(0, BASE if place < n else after) for place in range(2 * n + 1) if place != n
    }
    both = [plain, plain | {n: verdict(BASE)}]
    found, more = (
        find_changes(
            MemoryHistory(
                [
                    replace(
                        record,
                        commit=hash_of(place),
                        sources=f"{place:064x}",
                        recorded_at=f"2026-10-{place + 1:02}T00:00:00+00:00",
                    )
                    for place, record in sorted(one.items())
                ]
            ),
            QUIET,
            [hash_of(place) for place in range(2 * n + 1)],
            ["commit"],
        )
        for one in both
    )
    assert [(one.kind, one.state) for one in more] == [(one.kind, one.state) for one in found]


def test_what_only_the_calibration_moved_is_no_step() -> None:
    slower = [loud(BASE, 1.3)] * 6
    assert along_commits(*slower, *[BASE] * 6) == []


def test_a_change_dated_2099_is_not_the_newest() -> None:
    slow = timed(2e-3, 2e-3)
    history = [at(0, BASE), at(1, slow), at(2, timed(2e-3, 4e-3))]
    history[1] = replace(history[1], recorded_at="2099-01-01T00:00:00+00:00")
    found = find_changes(MemoryHistory(history), QUIET, [hash_of(n) for n in range(3)], ["commit"])
    assert [one.place for one in incidents_of(found)] == [hash_of(2), hash_of(1)]


def test_a_fixed_failure_is_over_and_an_open_one_persists() -> None:
    failure = make_failure("wrong")
    found = along_commits(BASE, failure, failure, BASE)
    assert [(c.kind, c.state) for c in found] == [("fails", "over"), ("fixed", "suspected")]
    assert [c.state for c in along_commits(BASE, failure, failure)] == ["persists"]


def test_a_graph_break_that_is_gone_again_is_over_whatever_is_warned_of() -> None:
    fixed = replace(BASE, warnings=(Counted(text="a warning of another run", count=1),))
    assert [c.state for c in along_commits(BASE, broken(BASE), fixed)] == ["over"]
    assert [c.state for c in along_commits(BASE, broken(BASE), broken(BASE))] == ["persists"]


def test_a_graph_break_that_was_repaired_is_over_whatever_else_is_compiled_again() -> None:
    """A recompile of another cause is a change of its own, and no sign of the break."""
    facts = BASE.compile
    assert facts is not None
    more = (*facts.recompiles, Counted(text="Recompiling function other in m.py:343", count=1))
    fixed = replace(BASE, compile=replace(facts, recompiles=more))
    assert [c.state for c in along_commits(BASE, broken(BASE), fixed)] == ["over", "suspected"]
    again = (*facts.graph_breaks, Counted(text="print at m.py:343 f", count=1))
    another = replace(BASE, compile=replace(facts, graph_breaks=again))
    assert along_commits(BASE, broken(BASE), another)[0].state == "over"


def test_a_commit_that_changes_nothing_of_the_case_is_never_blamed() -> None:
    same = "a" * 64
    history = [at(0, BASE, sources=same), at(1, timed(2e-3, 2e-3), sources=same)]
    assert find_changes(MemoryHistory(history), QUIET, [hash_of(0), hash_of(1)], ["commit"]) == ()


def test_another_instrument_or_lock_is_a_break_and_no_step() -> None:
    slow = timed(2e-3, 2e-3)
    for changes in (
        {"conditions": replace(slow.conditions, instrument="4")},
        {"conditions": replace(slow.conditions, threads=2)},
        {"cell": replace(slow.cell, lock_sha256="f" * 64)},
        {"benchmark": "b" * 64},
    ):
        first = at(0, replace(BASE, benchmark="c" * 64))
        history = [first, at(1, replace(slow, benchmark="c" * 64), **changes)]
        assert (
            find_changes(MemoryHistory(history), QUIET, [hash_of(0), hash_of(1)], ["commit"]) == ()
        )
        (series,) = series_of(MemoryHistory(history).entries, "commit", [hash_of(0), hash_of(1)])
        assert series.points[1].marks
        assert len(series.segments()) == 2


@pytest.mark.parametrize("along", ALONG)
@pytest.mark.parametrize(
    "other",
    [
        replace(BASE, machine=replace(BASE.machine, name="other")),
        replace(BASE, conditions=replace(BASE.conditions, device="cuda NVIDIA H200")),
        make_record(python="3.13"),
        make_record(torch="2.15.0"),
        replace(BASE, cell=replace(BASE.cell, lock_sha256=None)),
        replace(BASE, workload="ops.other"),
        replace(BASE, workload_version=2),
        replace(BASE, size="large"),
        replace(BASE, variant="other"),
        replace(BASE, dtype="float16"),
    ],
)
def test_records_that_differ_in_one_field_are_never_in_one_series(
    other: RunRecord, along: Along
) -> None:
    """pytorch/test-infra#7719: with a field less, compiled and eager results made one series."""
    history = MemoryHistory([at(0, BASE), at(0, other)])
    moved = (other.cell.python, other.cell.torch) != (BASE.cell.python, BASE.cell.torch)
    along_it = moved and along == ("python" if other.cell.python != BASE.cell.python else "torch")
    assert len(series_of(history.entries, along)) == (1 if along_it else 2)


def test_what_is_bad_since_a_release_is_placed_there_and_persists() -> None:
    speeds = {"2.5.1": 2.0, "2.6.0": 2.0, "2.7.1": 1.0, "2.8.0": 1.0, "2.15.0": 1.0}
    history = [make_record(torch=torch, speedup=speed) for torch, speed in speeds.items()]
    (found,) = find_changes(MemoryHistory(history), QUIET, along=["torch"])
    assert (found.before, found.place, found.kind, found.state) == (
        "2.6.0", "2.7.1", "slower", "persists",
    )  # fmt: skip


def test_a_free_threaded_python_is_no_step_between_two_others() -> None:
    speeds = {"3.13": 2.0, "3.14": 2.0, "3.14t": 1.0, "3.15": 2.0}
    history = [make_record(python=python, speedup=speed) for python, speed in speeds.items()]
    assert find_changes(MemoryHistory(history), QUIET, along=["python"]) == ()
    (series,) = series_of(MemoryHistory(history).entries, "python")
    assert [point.name for point in series.points] == ["3.13", "3.14", "3.15"]


def test_releases_of_two_subjects_are_never_mixed() -> None:
    """A release that was only measured at another commit is a gap, not a step."""
    history = [
        at(0, make_record(torch="2.5.1", speedup=2.0)),
        at(0, make_record(torch="2.6.0", speedup=2.0)),
        at(1, make_record(torch="2.7.1", speedup=1.0)),
    ]
    assert find_changes(MemoryHistory(history), QUIET, along=["torch"]) == ()


@pytest.mark.parametrize("place", [12, 25])
def test_a_step_in_a_long_noisy_history_is_placed(place: int) -> None:
    draw = random.Random(place)  # noqa: S311  (noise)
    history = [
        timed(2e-3, (1e-3 if n < place else 1.2e-3) * math.exp(draw.gauss(0, 0.02)))
        for n in range(31)
    ]
    records = [
        replace(
            at(0, record),
            commit=hash_of(n),
            sources=f"{n:064x}",
            recorded_at=f"2026-{1 + n // 28:02}-{1 + n % 28:02}T00:00:00+00:00",
        )
        for n, record in enumerate(history)
    ]
    found = find_changes(
        MemoryHistory(records), Known(0.02), [hash_of(n) for n in range(31)], ["commit"]
    )
    assert [(c.kind, c.state) for c in found] == [("slower", "persists")]
    assert abs(int(found[0].place, 16) - place) <= 1
    assert found[0].effect == pytest.approx(1 / 1.2, rel=0.05)


def test_cases_that_moved_together_are_one_incident() -> None:
    history: list[RunRecord] = []
    for workload, speed in (("ops.a", 1e-3), ("ops.b", 1.5e-3), ("ops.c", 5e-4)):
        for n, compiled_s in enumerate((1e-3, 1e-3 * speed * 1e3)):
            history.append(at(n, replace(timed(2e-3, compiled_s), workload=workload)))
    order = [hash_of(0), hash_of(1)]
    found = find_changes(MemoryHistory(history), QUIET, order, ["commit"])
    incidents = incidents_of(found)
    assert [(one.worse, len(one.changes)) for one in incidents] == [(True, 1), (False, 1)]
    assert {c.kind in WORSE for one in incidents if one.worse for c in one.changes} == {True}


def test_a_series_that_gets_no_more_points_has_stopped() -> None:
    other = replace(BASE, workload="ops.other")
    history = [at(n, other) for n in range(7)] + [at(n, BASE) for n in range(2)]
    order = [hash_of(n) for n in range(7)]
    (found,) = find_changes(MemoryHistory(history), QUIET, order, ["commit"])
    assert (found.kind, found.before, found.place) == ("missing", hash_of(1), hash_of(2))
    assert found.case.workload == BASE.workload
    assert "5 later commits" in found.reason
    assert found.command == BASE.command
    # Four later ones are an ordinary gap, and other cells say nothing.
    few = [record for record in history if record.commit != hash_of(6)]
    assert not find_changes(MemoryHistory(few), QUIET, order, ["commit"])
    elsewhere = [
        replace(r, cell=replace(r.cell, id="py3.13-torch2.6.0", python="3.13"))
        if r.workload == "ops.other"
        else r
        for r in history
    ]
    assert not find_changes(MemoryHistory(elsewhere), QUIET, order, ["commit"])
    newer = [replace(r, workload_version=2) for r in history if r.workload == "ops.other"]
    replaced = [replace(r, workload="ops.other") for r in history if r.workload == BASE.workload]
    assert not find_changes(MemoryHistory([*newer, *replaced]), QUIET, order, ["commit"])


@pytest.mark.parametrize("history", [[], [BASE], [make_failure()]])
def test_a_history_without_neighbours_has_no_change(history: Sequence[RunRecord]) -> None:
    assert find_changes(MemoryHistory(history), QUIET) == ()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    make_fleet_project(folder)
    monkeypatch.chdir(folder)
    return folder


def test_the_command_finds_nothing_good_in_no_records(root: Path) -> None:
    (root / "empty").mkdir()
    for options in ([], ["--json"]):
        error = CliRunner().invoke(app, ["regressions", "--results", "empty", *options]).exception
        assert isinstance(error, ResultsError)
        assert str(error) == "no records in empty"


def test_the_command_lists_incidents_and_says_when_there_are_none(root: Path) -> None:
    record = a_record(root)
    write_records(root / "results", record)
    assert "nothing got worse in 1 record" in CliRunner().invoke(app, ["regressions"]).stdout
    cell = replace(record.cell, torch="2.7.1", id="py3.12-torch2.7.1")
    failure = make_failure("wrong", "start " + "x" * 500 + " end").failure
    write_records(root / "results", replace(record, cell=cell, failure=failure, speedup=None))
    wide = {"COLUMNS": "1000"}
    text = CliRunner().invoke(app, ["regressions", "--all"], env=wide).stdout
    assert "PyTorch 2.6.0 -> 2.7.1: 1 fail" in text
    assert f"wrong: start {'x' * 20}" in text
    assert "x […] x" in text
    assert "x" * 300 not in text
    assert "disturbed" not in text
    fixed = Calibration(code_s=(5e-5,), memory_s=(6e-4,))
    again = [
        replace(
            record,
            size=f"n{n}",
            calibration=replace(fixed, code_s=(9e-5,)) if n == 8 else fixed,
        )
        for n in range(9)
    ]
    write_records(root / "results", *again)
    assert CliRunner().invoke(app, ["regressions"], env=wide).stdout.splitlines()[-1] == (
        "1 run was disturbed, by the calibration, and left out of steps in time: "
        "ops.one/n8/a in py3.12-torch2.6.0"
    )
    told = json.loads(CliRunner().invoke(app, ["regressions", "--json"]).stdout)["incidents"]
    assert "x" * 500 in told[0]["changes"][0]["reason"]
    assert [(one["place"], one["changes"][0]["state"]) for one in told] == [("2.7.1", "suspected")]
    for option in ("--workload", "--machine", "--along"):
        done = CliRunner().invoke(app, ["regressions", option, "nowhere"])
        assert isinstance(done.exception, UnknownNameError)


def test_a_word_on_a_change_is_kept_and_shown(root: Path) -> None:
    record = a_record(root)
    cell = replace(record.cell, torch="2.7.1", id="py3.12-torch2.7.1")
    failed = replace(record, cell=cell, failure=make_failure("wrong").failure, speedup=None)
    write_records(root / "results", record, failed)
    run = CliRunner().invoke
    note_change(root, torch=">=2.7", workload="ops.one", reason="reported upstream")
    assert "known: reported upstream" in run(app, ["regressions"]).stdout
    note_change(root, torch=">=2.7", workload="ops.two", reason="not this")
    told = json.loads(run(app, ["regressions", "--json"]).stdout)["incidents"]
    assert told[0]["changes"][0]["note"] == "reported upstream"
    note_change(root, torch="2.7", reason="no range")
    warned = run(app, ["regressions"])
    assert "expectations.toml: change.2.torch" in warned.stderr
    assert "reported upstream" not in warned.stdout


RELEASES = [f"2.{minor}.0" for minor in range(4, 16)]


def along_releases(*records: RunRecord) -> list[RunRecord]:
    return [
        replace(record, cell=replace(record.cell, torch=torch))
        for torch, record in zip(RELEASES, records, strict=False)
    ]


def test_a_release_that_alone_is_slow_is_listed_as_compare_lists_it() -> None:
    """PyTorch 2.9.1 and its 12 µs a call: 7 cases here, where `ivhl compare` had 41."""
    history = along_releases(*[BASE] * 5, timed(2e-3, 1.4e-3), *[BASE] * 6)
    found = find_changes(MemoryHistory(history), QUIET, (), ["torch"])
    assert [(c.kind, c.before, c.place, c.state) for c in found] == [
        ("slower", "2.8.0", "2.9.0", "over"),
        ("faster", "2.9.0", "2.10.0", "persists"),
    ]
    was, now = ([r for r in history if r.cell.torch == torch] for torch in ("2.8.0", "2.9.0"))
    (one,) = compare(was, now, "torch", QUIET)
    assert one.kind == "slower"
    assert math.exp(one.effect) == pytest.approx(found[0].effect)


def test_what_is_asked_for_changes_nothing_of_what_is_found() -> None:
    """Alone, nine cases here stand out; beside the others of their release, seven."""
    draw = random.Random(0)  # noqa: S311  (noise)
    names = [f"ops.case{n}" for n in range(12)]
    history = [
        replace(record, workload=name)
        for n, name in enumerate(names)
        for record in along_releases(
            *(timed(2e-3, 1e-3 * math.exp(draw.gauss(0, 0.02))) for _ in range(3)),
            timed(2e-3, (1 + n / 90) * 1e-3),
        )
    ]
    found = find_changes(MemoryHistory(history), Known(0.02), (), ["torch"])
    assert 0 < len({one.case.workload for one in found}) < len(names)
    for name in names:
        mine = find_changes(
            MemoryHistory(history), Known(0.02), (), ["torch"], wanted=partial(_is_of, name)
        )
        assert mine == tuple(one for one in found if one.case.workload == name)


def _is_of(workload: str, entry: Entry) -> bool:
    return entry.case.workload == workload


def test_what_only_levels_show_says_so_and_the_others_are_those_of_compare() -> None:
    draw = random.Random(1)  # noqa: S311  (noise)
    fast, slow = (
        [timed(2e-3, s * math.exp(draw.gauss(0, 0.01))) for _ in range(6)] for s in (1e-3, 1.12e-3)
    )
    lasting, sudden = along_releases(*fast, *slow), along_releases(*fast, timed(2e-3, 2e-3))
    history = [*lasting, *(replace(one, workload="ops.other") for one in sudden)]
    found = find_changes(MemoryHistory(history), Known(0.05), (), ["torch"])
    assert {(one.case.workload, one.place, one.of_levels) for one in found} == {
        (BASE.workload, RELEASES[6], True), ("ops.other", RELEASES[6], False),
    }  # fmt: skip
    assert counts_of_changes(found) == "2 slower (1 by levels over several releases)"
    was, now = ([r for r in history if r.cell.torch == torch] for torch in RELEASES[5:7])
    kinds = {one.case.workload: one.kind for one in compare(was, now, "torch", Known(0.05))}
    assert kinds == {BASE.workload: "unchanged", "ops.other": "slower"}


def test_what_nobody_acts_on_is_no_incident_of_its_own() -> None:
    """Of a release, "1 slower: 0.42x to 0.41x" was; a commit is taken back for less."""
    small, large = timed(2e-3, 1.08e-3), timed(2e-3, 1.3e-3)
    for after, n in ((small, 0), (large, 1)):
        history = along_releases(BASE, after)
        changes = find_changes(MemoryHistory(history), QUIET, (), ["torch"])
        assert [one.kind for one in changes] == ["slower"]
        assert len(incidents_of(changes)) == n
    assert len(incidents_of(along_commits(BASE, small))) == 1
    # Beside a large change, a small one counts as `ivhl compare` counts it.
    other = [replace(r, workload="ops.other") for r in along_releases(BASE, large)]
    history = [*along_releases(BASE, small), *other]
    (incident,) = incidents_of(find_changes(MemoryHistory(history), QUIET, (), ["torch"]))
    assert [one.kind for one in incident.changes] == ["slower", "slower"]


def test_the_numbers_of_an_incident_never_contradict_its_direction() -> None:
    """An incident said "worse ... 1.32x to 1.52x": eager code was slower, so the speedup rose."""
    state = State(
        name="demo", recorded=(), problems=(), cells=(), releases=None, unavailable={},
        workloads=(), cases=(), commit_order=(),
    )  # fmt: skip
    for after, effect in (
        (timed(1e-2, 1e-3), "eager 5.00x as long"),
        (timed(4e-3, 1.6e-3), "compiled 1.60x as long"),
        (broken(timed(2e-3, 8e-4)), ""),
        (timed(2e-3, 2e-3), "speedup 2.00x to 1.00x"),
    ):
        history = along_releases(BASE, after)
        source = Source(replace(state, recorded=tuple(map(recorded, history))))
        (incident,) = regressions_view(source).incidents
        (change,) = incident.changes
        assert (incident.worse, change.effect) == (True, effect)
