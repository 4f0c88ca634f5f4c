"""A comparison averages what ran on both sides only, and blames a release for no commit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.cli.compare import _sentence
from ivhl.cli.gate import GapsError
from ivhl.errors import IvhlError, ResultsError, SpecError, UnknownNameError, WorseError
from ivhl.records.identity import key_of
from ivhl.records.record import Calibration, Counted, Wheel
from ivhl.tracker.changes.compare import axis_of, choose, compare, session_reach, summarise
from ivhl.tracker.changes.incidents import changes_between
from ivhl.tracker.changes.regressions import find_changes
from ivhl.tracker.store.course import MemoryHistory
from ivhl.tracker.store.entries import entry_of
from tests.builders.fleet import a_record, commit, make_fleet_project, write_records
from tests.builders.project import git
from tests.builders.records import Known, interval, make_failure, make_record

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.records.identity import AtCommit
    from ivhl.records.record import RunRecord

QUIET = Known(0.005)


def pair(before: RunRecord, after: RunRecord) -> tuple[str, str]:
    """Return kind and reason of a case that is on both sides."""
    (found,) = compare([before], [after], "commit", QUIET)
    return found.kind, found.reason


BASE = make_record()
BROKEN = make_failure("wrong", "off by 3")


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (BASE, BASE, "unchanged"),
        (BASE, make_record(speedup=1.0), "slower"),
        (BASE, make_record(speedup=4.0), "faster"),
        (BASE, BROKEN, "fails"),
        (BROKEN, BASE, "fixed"),
        (BROKEN, make_failure("crash"), "unchanged"),
        (BASE, replace(BASE, conditions=replace(BASE.conditions, threads=4)), "incomparable"),
    ],
)
def test_each_case_has_one_kind(before: RunRecord, after: RunRecord, kind: str) -> None:
    found, reason = pair(before, after)
    assert found == kind
    assert reason


def test_a_python_without_a_wheel_makes_a_case_unavailable_as_in_the_history() -> None:
    """It was "fails" with an unknown cause, and ``ivhl regressions`` listed nothing."""
    old = [make_record(workload=f"ops.{name}", python="3.12") for name in "abc"]
    new = [
        make_failure("unavailable", "no wheels", workload="ops.a", python="3.14"),
        make_failure("support_gate", "not supported", workload="ops.b", python="3.14"),
        make_record(workload="ops.c", python="3.14"),
    ]
    found = {one.case.workload: one for one in compare(old, new, "python", QUIET)}
    assert {name: one.kind for name, one in found.items()} == {
        "ops.a": "unavailable", "ops.b": "fails", "ops.c": "unchanged",
    }  # fmt: skip
    told = found["ops.a"].reason
    assert told.startswith("no wheel of PyTorch 2.6.0 for Python 3.14; before: 2.00x")
    back = {one.case.workload: one.kind for one in compare(new, old, "python", QUIET)}
    assert back == {"ops.a": "new", "ops.b": "fixed", "ops.c": "unchanged"}
    (summary,) = summarise(found.values())
    assert summary.on_both == 2
    changes = changes_between(found.values(), old, "python", "3.12")
    assert [one.case.workload for one in changes] == ["ops.b"]
    history = find_changes(MemoryHistory([*old, *new]), QUIET, (), ["python"])
    assert [(one.case.workload, one.kind) for one in history] == [("ops.b", "fails")]


def test_eager_code_that_takes_longer_has_a_kind_of_its_own_and_the_largest_comes_first() -> None:
    def slower_by(factor: float, size: str) -> RunRecord:
        arm = BASE.eager
        assert arm is not None
        eager = replace(arm, samples_s=tuple(factor * s for s in arm.samples_s))
        return replace(BASE, size=size, eager=eager, speedup=interval(2.0 * factor, 0.01))

    sizes = {"small": 2.0, "medium": 5.0, "large": 1.0}
    before = [slower_by(1.0, size) for size in sizes]
    found = compare(before, [slower_by(n, size) for size, n in sizes.items()], "commit", QUIET)
    assert [(one.case.size, one.kind) for one in found] == [
        ("medium", "eager slower"),
        ("small", "eager slower"),
        ("large", "unchanged"),
    ]
    assert found[0].reason.startswith("eager became slower; speedup")
    (summary,) = summarise(found)
    assert summary.counts == {"eager slower": 2, "unchanged": 1}


def test_a_new_graph_break_degrades_a_case_that_got_faster() -> None:
    facts = BASE.compile
    assert facts is not None
    breaks = (*facts.graph_breaks, Counted(text="Tensor.item", count=1))
    after = replace(make_record(speedup=4.0), compile=replace(facts, graph_breaks=breaks))
    kind, reason = pair(BASE, after)
    assert kind == "degraded"
    assert "new: Tensor.item" in reason


def test_the_times_of_a_disturbed_run_are_not_compared_and_its_facts_are() -> None:
    facts = BASE.compile
    assert facts is not None
    breaks = (*facts.graph_breaks, Counted(text="Tensor.item", count=1))
    before = [make_record(workload=f"ops.{name}", torch="2.5.1") for name in "abc"]
    after = [
        make_record(workload="ops.a", speedup=1.0),
        replace(
            make_record(workload="ops.b", speedup=1.0), compile=replace(facts, graph_breaks=breaks)
        ),
        make_record(workload="ops.c"),
    ]
    after = [replace(one, recorded_at=f"2026-11-28{one.recorded_at[10:]}") for one in after]
    slowed: tuple[frozenset[AtCommit], frozenset[AtCommit]] = (
        frozenset(),
        frozenset(key_of(one) for one in after[:2]),
    )
    found = {one.case.workload: one for one in compare(before, after, "torch", QUIET, slowed)}
    assert {name: one.kind for name, one in found.items()} == {
        "ops.a": "incomparable",
        "ops.b": "degraded",
        "ops.c": "unchanged",
    }
    assert found["ops.a"].reason.startswith("the later run was disturbed, by the calibration")
    assert [name for name, one in found.items() if one.is_disturbed] == ["ops.b", "ops.a"]
    (summary,) = summarise(found.values())
    assert summary.means["speedup"].cases == 1


def test_means_are_over_what_ran_on_both_sides() -> None:
    """pytorch/test-infra#6969: the mean of the passing cases rises when the slowest breaks."""
    before = [
        make_record(workload="ops.a", speedup=4.0),
        make_record(workload="ops.b", speedup=1.0),
    ]
    after = [
        make_record(workload="ops.a", speedup=4.0),
        make_failure("wrong", workload="ops.b"),
        make_record(workload="ops.c", speedup=9.0),
    ]
    (summary,) = summarise(compare(before, after, "commit", QUIET))
    assert summary.means["speedup"].ratio == pytest.approx(1.0)
    assert summary.means["speedup"].cases == 1
    assert summary.counts == {"fails": 1, "new": 1, "unchanged": 1}


def test_no_number_of_cases_tells_a_mean_from_another_session() -> None:
    before = [replace(BASE, workload=f"ops.w{n}") for n in range(200)]
    (summary,) = summarise(compare(before, before, "torch", Known(0.01)))
    for metric in ("compiled", "speedup"):
        mean = summary.means[metric]
        assert mean.high == pytest.approx(math.exp(session_reach(metric)))
        assert mean.high * mean.low == pytest.approx(1)
    assert summary.means["compiled"].high > 1.2


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6))
def test_the_mean_is_geometric_and_turns_round(ratios: list[float]) -> None:
    names = [f"ops.w{n}" for n in range(len(ratios))]
    sides = [
        [make_record(workload=w, speedup=2 * r**power) for w, r in zip(names, ratios, strict=True)]
        for power in (0, 1)
    ]
    there, back = (
        summarise(compare(a, b, "commit", QUIET))[0].means["speedup"]
        for a, b in (sides, sides[::-1])
    )
    assert there.ratio == pytest.approx(math.prod(ratios) ** (1 / len(ratios)))
    assert there.ratio * back.ratio == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)


def test_releases_are_compared_at_the_newest_commit_that_both_have() -> None:
    old, new = "a" * 40, "b" * 40
    late = "2026-12-01T00:00:00+00:00"
    before = [make_record(torch="2.5.1", commit=old, speedup=2.0)]
    after = [
        make_record(torch="2.6.0", commit=old, speedup=2.0),
        make_record(torch="2.6.0", commit=new, speedup=1.0, recorded_at=late),
    ]
    (found,) = compare(before, after, "torch", QUIET)
    assert found.kind == "unchanged"
    # Without a common commit, what differs is named and nobody is blamed.
    (found,) = compare(before, after[1:], "torch", QUIET)
    assert (found.kind, found.reason) == (
        "incomparable",
        f"commit {old[:8]} before, {new[:8]} now",
    )
    same = [replace(record, sources="c" * 64) for record in (before[0], after[1])]
    (found,) = compare(same[:1], same[1:], "torch", QUIET)
    assert found.kind == "slower"


def test_other_builds_of_torch_are_not_compared_along_commits() -> None:
    """As in the gate: the same version from another index is another file."""
    wheel = Wheel(name="torch", version="2.6.0", build=None, tags=(), record_sha256="a" * 64)
    one, other = (
        replace(
            BASE, conditions=replace(BASE.conditions, wheels=(replace(wheel, record_sha256=h),))
        )
        for h in ("a" * 64, "b" * 64)
    )
    kind, reason = pair(one, other)
    assert (kind, reason) == ("incomparable", "torch 2.6.0 wheel: same version, other files")
    elsewhere = replace(other, machine=replace(other.machine, name="m"), commit=one.commit)
    (found,) = compare([one], [elsewhere], "machine", QUIET)
    assert found.kind == "incomparable"


def test_the_names_say_what_is_compared() -> None:
    records = [
        entry_of(make_record(torch="2.5.1")), entry_of(make_record(torch="2.6.0", python="3.13"))
    ]  # fmt: skip
    assert axis_of(("2.5.1", "2.6.0"), records) == "torch"
    assert axis_of(("3.12", "3.13"), records) == "python"
    assert axis_of(("bench", "bench"), records) == "machine"
    assert axis_of(("2.5.1", "3.12"), records) is None
    assert choose(records, "torch", {"2.5.1"}) == (records[0],)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    make_fleet_project(folder)
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: str) -> Any:  # noqa: ANN401  (click's result)
    return CliRunner().invoke(app, ["compare", *arguments], env={"COLUMNS": "300"})


def test_commands_say_which_runs_their_calibration_shows_disturbed(root: Path) -> None:
    usual, loud = (Calibration(compute_s=(s,) * 4, memory_s=(6e-4,) * 4) for s in (5e-5, 8e-5))
    write_records(
        root / "results",
        *(a_record(root, size=f"s{n}", calibration=usual) for n in range(9)),
        *(
            a_record(root, "box", torch=torch, minute=hour, speedup=speedup, calibration=one)
            for torch, hour, speedup, one in (("2.5.1", 1, 2.0, usual), ("2.6.0", 2, 1.0, loud))
        ),
        # A quiet run of such a speedup: contention explains that of the others.
        a_record(root, "box", torch="2.10.0", speedup=0.5, calibration=usual),
    )
    found = run("2.5.1", "2.6.0", "--all")
    assert "inconclusive (1)" in found.output
    assert "the later run was disturbed, by the calibration: the times say nothing" in found.output
    assert "1 case with a disturbed run, by the calibration: times not compared" in found.output
    first = git(root, "rev-parse", "HEAD")
    (root / "code.py").write_text("slower = True")
    head = commit(root, "slower")
    later = a_record(root, minute=3, speedup=0.5, calibration=loud, sources="e" * 64)
    write_records(root / "results", later)
    gate = CliRunner().invoke(
        app, ["gate", "--base", first, "--commit", head, "--torch", "2.6.0", "--allow-missing"]
    )
    assert isinstance(gate.exception, WorseError)  # both are of one hour
    write_records(root / "results", replace(later, recorded_at="2026-11-21T12:00:00+00:00"))
    gate = CliRunner().invoke(app, ["gate", "--base", first, "--commit", head, "--torch", "2.6.0"])
    assert isinstance(gate.exception, GapsError)
    assert "both runs were disturbed" in gate.output


@pytest.mark.parametrize(
    "command",
    [
        ["compat"], ["results"], ["advise"], ["compare", "2.5.1", "2.6.0"], ["course"],
        ["course", "ops.one"], ["check", "expectations"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_shows_records_names_a_matrix_that_cannot_be_read_once_and_goes_on(
    root: Path, command: list[str]
) -> None:
    write_records(root / "results", *(a_record(root, torch=torch) for torch in ("2.5.1", "2.6.0")))
    (root / "envs" / "matrix.toml").write_text("broken = [")
    done = CliRunner().invoke(app, command)
    assert done.exception is None
    assert done.output.count("warning: matrix.toml: is not valid TOML: ") == 1


def test_what_names_cells_or_decides_refuses_a_matrix_that_cannot_be_read(root: Path) -> None:
    write_records(root / "results", a_record(root))
    (root / "envs" / "matrix.toml").write_text("broken = [")
    for command in (
        ["gate", "--base", "HEAD~1"],
        ["attribute", "py3.12-torch2.5.1", "py3.12-torch2.6.0"],
        ["bisect", "2.5.1", "2.6.0", "--case", "ops.one", "--dry-run"],
    ):
        assert isinstance(CliRunner().invoke(app, command).exception, SpecError), command


def test_the_command_prints_a_sentence_and_what_changed(root: Path) -> None:
    record = a_record(root)
    other = replace(record, cell=replace(record.cell, torch="2.5.1", id="py3.12-torch2.5.1"))
    write_records(root / "results", record, other)
    told = run("2.5.1", "2.6.0").stdout
    assert "2.5.1 -> 2.6.0 on box, cpu, Python 3.12: 1 case on both sides" in told
    # One case has no interval of cases.
    assert "speedup 1.00x of what it was" in told
    assert "inf" not in told
    assert "1 case unchanged, new, missing, incomparable or inconclusive: --all" in told
    found = json.loads(run("2.5.1", "2.6.0", "--json").stdout)
    assert (found["axis"], [case["kind"] for case in found["cases"]]) == ("torch", ["unchanged"])


def test_cases_that_fail_on_two_machines_are_compared_and_their_times_are_not() -> None:
    """Two machines had "no case is compared", and in the next line "2 unchanged"."""
    failed = make_failure("crash", "ended")
    before = [replace(failed, workload=f"ops.w{n}") for n in range(2)]
    machine = replace(failed.machine, name="other")
    after = [replace(one, machine=machine) for one in before]
    (both,) = summarise(compare(before, after, "machine", QUIET))
    assert both.counts == {"unchanged": 2}
    text = _sentence("one", "other", both)
    assert "2 cases on both sides, times not compared; both fail: crash: ended" in text
    assert "no case" not in text


def test_a_mean_over_few_cases_says_so_and_why(root: Path) -> None:
    """Two machines were "0.95x over 3 cases", and seven times "no case ran in the same way"."""
    del root

    def on(release: str, *speedups: float, instrument: str = "7") -> list[RunRecord]:
        made = make_record(torch=release, width=0.001)
        other = replace(made, conditions=replace(made.conditions, instrument=instrument))
        return [
            replace(other, workload=f"ops.w{n}", speedup=interval(value, 0.001))
            for n, value in enumerate(speedups)
        ]

    was, now = on("2.5.1", *[2.0] * 7), on("2.6.0", 1.8, 2.1, 1.9)
    now += on("2.6.0", *[2.0] * 7, instrument="8")[3:]
    (few,) = summarise(compare(was, now, "torch", QUIET))
    assert (few.means["speedup"].cases, few.on_both) == (3, 7)
    assert few.apart == "instrument unknown (7) before, unknown (8) now"
    text = _sentence("2.5.1", "2.6.0", few)
    assert "3 of 7 cases on both sides, speedup 0.96x [0." in text
    mean = few.means["speedup"]
    assert math.log(mean.high / mean.ratio) > 0.15  # Student's t of 2 degrees, not 1.96
    (none,) = summarise(compare(was[3:], now[3:], "torch", QUIET))
    assert _sentence("2.5.1", "2.6.0", none).endswith(
        f": 4 cases on both sides, times not compared; {few.apart}"
    )
    (most,) = summarise(compare(was[:4], now[:4], "torch", QUIET))
    assert most.apart == ""
    failed = [replace(make_failure("crash", "ended"), workload="ops.w0")]
    (both,) = summarise(compare(on("2.5.1", 2.0), failed, "torch", QUIET))
    assert both.apart.startswith(
        "fails now: 2.00x · 1 graph break · 2 recompiles before; crash: ended now"
    )


def test_a_series_of_releases_means_the_newest_of_it_in_the_matrix(root: Path) -> None:
    record = a_record(root)
    other = replace(record, cell=replace(record.cell, torch="2.5.1", id="py3.12-torch2.5.1"))
    write_records(root / "results", record, other)
    assert run("2.5", "2.6", "--json").stdout == run("2.5.1", "2.6.0", "--json").stdout != ""
    write_records(root / "results", a_record(root, "other"))
    assert run("box", "other", "--torch", "2.6", "--json").exit_code == 0


def test_what_cannot_be_compared_is_refused_with_the_next_step(root: Path) -> None:
    write_records(root / "results", a_record(root))
    for names, error, text in (
        (("2.5.1", "nowhere"), SpecError, "cannot compare '2.5.1' with 'nowhere'"),
        (("HEAD~1", "HEAD~1"), (SpecError, ResultsError), ""),
    ):
        found = run(*names).exception
        assert isinstance(found, error)
        assert isinstance(found, IvhlError)
        assert text in str(found)
        assert found.hint


def test_the_name_that_is_at_fault_is_blamed(root: Path, tmp_path: Path) -> None:
    """A name that no record has was an unknown commit, and so was what an option left nothing of."""
    record = a_record(root)
    older = replace(record, cell=replace(record.cell, torch="2.5.1", id="py3.12-torch2.5.1"))
    write_records(root / "results", record, older)
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, error, text in (
        ("2.5.1 2.6.0 --torch 9", UnknownNameError, "unknown PyTorch release '9'"),
        ("2.5.1 2.6.0 --machine nope", UnknownNameError, "unknown machine 'nope'"),
        ("2.5.1 2.6.0 --python 3.11", UnknownNameError, "unknown Python '3.11'"),
        (
            "2.5.1 2.6.0 --python 3.13",
            ResultsError,
            "Python 3.13: is in the matrix, but has no",
        ),
        ("2.5.1 2.6.0 --workload ops.no", UnknownNameError, "unknown workload 'ops.no'"),
        (f"2.5.1 2.6.0 --results {empty}", ResultsError, f"no records in {empty}"),
        (f"results {empty}", ResultsError, f"no records in {empty}"),
        (f"{empty} results", ResultsError, f"no records in {empty}"),
        (
            "2.5.1 2.6.0 --torch 2.6",
            ResultsError,
            "no record of PyTorch release 2.5.1 has these op",
        ),
        ("3.12 3.13", ResultsError, "Python 3.13: is in the matrix, but has no record"),
        ("box nope", SpecError, "cannot compare 'box' with 'nope': unknown machine 'nope'"),
        ("nope box", SpecError, "cannot compare 'nope' with 'box': unknown machine 'nope'"),
        ("2.5 3.12", SpecError, "2.5 is a PyTorch release, 3.12 is a Python"),
        ("HEAD nope", SpecError, "HEAD is a commit, 'nope' is none"),
        ("nope results", SpecError, "results is a folder, 'nope' is none"),
        ("nope no", SpecError, "cannot compare 'nope' with 'no': git knows no commit 'nope'"),
    ):
        found = run(*arguments.split()).exception
        assert isinstance(found, error), arguments
        assert text in str(found)
        assert found.hint


@pytest.mark.parametrize(
    ("names", "sort"),
    [
        ("3.12 3.12", "Python"),
        ("2.6 2.6.0", "PyTorch release"),
        ("box box", "machine"),
        ("HEAD main", "commit"),
        ("results ./results/", "folder"),
    ],
)
def test_a_side_is_not_compared_with_itself(root: Path, names: str, sort: str) -> None:
    write_records(root / "results", a_record(root))
    found = run(*names.split()).exception
    assert isinstance(found, SpecError)
    assert str(found) == f"{names.replace(' ', ' and ')} are the same {sort}"
    assert found.hint


def test_what_cannot_be_read_in_two_folders_is_named_once(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for folder in (root / "results", other):
        write_records(folder, a_record(root))
        next(folder.rglob("*.jsonl")).with_name(f"torn-{folder.name}.jsonl").write_text("{")
    told = run("results", str(other))
    assert told.exit_code == 0
    for name in ("torn-results.jsonl:1: must be JSON", "torn-other.jsonl:1: must be JSON"):
        assert told.stderr.count(name) == 1
