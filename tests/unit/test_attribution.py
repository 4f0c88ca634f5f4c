"""What is attributed to an axis is what that axis does, and cells must differ in nothing else."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import sys
from dataclasses import replace
from io import StringIO
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from ivhl.bench.attribution import (
    RecordedLocks,
    attribute_measured,
    measure_corners,
)
from ivhl.bench.experiment import Runs
from ivhl.bench.request import Request
from ivhl.cli import app
from ivhl.cli.attribute import _print_effects
from ivhl.errors import LockError, ResultsError, SpecError
from ivhl.matrix.spec import load_matrix
from ivhl.measure.flags import Flag, NoSuchFlagError, parse_flag, set_flag
from ivhl.records.answers import newest_keys
from ivhl.records.files import append_record, record_file
from ivhl.records.reader import read_record
from ivhl.records.record import Arm, to_json
from ivhl.tracker.causes.attribution import (
    Attributed,
    Effect,
    Treatment,
    attribute,
    contrasts,
    corners_of,
    disturbed_by,
    edges_of,
    factors_of,
    judge_together,
    not_matched,
    overall,
    overall_local,
    reported,
)
from ivhl.tracker.changes.comparable import BUILDS_UNKNOWN, differences
from ivhl.tracker.changes.compare import session_reach
from ivhl.tracker.terminal import Terminal
from studies.schemas import SCHEMAS
from studies.stored import load_records
from tests.builders.fleet import a_record, commit, make_fleet_project, write_records
from tests.builders.project import git
from tests.builders.records import Known, make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ivhl.errors import IvhlError
    from ivhl.records.record import RunRecord
    from ivhl.tracker.causes.attribution import Corner

FIRST, LAST = Treatment("3.12", "2.5.1", "a" * 40), Treatment("3.13", "2.6.0", "a" * 40)
CASE = "ops.one/small/a"


def timed(corner: Corner, compiled_s: float, eager_s: float = 2e-3) -> RunRecord:
    return replace(
        make_record(
            python=corner.at.python,
            torch=corner.at.torch,
            speedup=eager_s / compiled_s,
            width=0.002,
        ),
        commit=corner.at.commit,
        eager=Arm(calls=1, samples_s=(eager_s,) * 8),
        compiled=Arm(calls=1, samples_s=(compiled_s,) * 8),
    )


def slowed(arm: Arm, factor: float) -> Arm:
    return replace(arm, samples_s=tuple(factor * s for s in arm.samples_s))


def by_effects(python: float, torch: float, both: float = 1.0) -> dict[Corner, RunRecord]:
    """Return records whose compiled seconds have these factors."""
    return {
        corner: timed(
            corner,
            1e-3
            * (python if corner.setting[0] else 1)
            * (torch if corner.setting[1] else 1)
            * (both if all(corner.setting) else 1),
        )
        for corner in corners_of(FIRST, LAST)
    }


def test_each_axis_gets_what_it_did_and_the_other_nothing() -> None:
    factors = factors_of(FIRST, LAST)
    assert factors == ("python", "torch")
    found = attribute(by_effects(1.0, 1.4), factors, Known(0.005))
    effects = {(e.factors, e.metric): e for e in found.effects}
    torch = effects[("torch",), "compiled"]
    assert torch.ratio == pytest.approx(1.4)
    assert torch.low < 1.4 < torch.high
    assert torch.word == "slower"
    python = effects[("python",), "compiled"]
    assert python.ratio == pytest.approx(1.0)
    assert python.word == "unchanged"
    assert effects[("python", "torch"), "compiled"].ratio == pytest.approx(1.0)
    assert effects[("torch",), "eager"].word == "unchanged"
    # A speedup that falls is slower.
    assert effects[("torch",), "speedup"].ratio == pytest.approx(1 / 1.4)
    assert effects[("torch",), "speedup"].word == "slower"


def test_what_both_do_only_together_is_the_interaction() -> None:
    found = attribute(by_effects(1.0, 1.0, 2.0), ("python", "torch"), Known(0.005))
    effects = {e.factors: e.ratio for e in found.effects if e.metric == "compiled"}
    assert effects["python", "torch"] == pytest.approx(2.0)
    assert effects[("python",)] == effects[("torch",)] == pytest.approx(math.sqrt(2))


def in_words(found: Attributed, ends: tuple[Treatment, Treatment]) -> str:
    console = Terminal(file=StringIO(), width=400)
    _print_effects(console, ends, reported(found.effects, found.local), found.local, "")
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("odd", "where"),
    [
        ((True, True), "Python 3.13 with PyTorch 2.6.0"),
        ((True, False), "Python 3.13 with PyTorch 2.5.1"),
        ((False, False), "Python 3.12 with PyTorch 2.5.1"),
    ],
)
def test_what_one_cell_alone_shows_is_no_effect_of_an_axis_everywhere(
    odd: tuple[bool, bool], where: str
) -> None:
    records = {
        corner: timed(corner, 2e-3 if corner.setting == odd else 1e-3)
        for corner in corners_of(FIRST, LAST)
    }
    found = judge_together([attribute(records, ("python", "torch"), Known(0.005))])
    text = in_words(found[0], (FIRST, LAST))
    assert f"only on {where}: compiled 2.00x" in text
    assert "1.41x" not in text
    assert "0.71x" not in text


def test_what_axes_do_together_is_said_once_by_the_axis_that_does_most() -> None:
    """It was five lines: each axis at each setting of the other, and the interaction."""
    found = judge_together(
        [attribute(by_effects(1.0, 1.5, 1.6), ("python", "torch"), Known(0.005))]
    )
    text = re.sub(r" \[[^]]*\]", "", in_words(found[0], (FIRST, LAST)))
    torch = "PyTorch 2.5.1 -> 2.6.0: eager 1.00x unchanged; compiled on Python 3.12 1.50x slower, "
    assert f"{torch}on Python 3.13 2.40x slower; speedup on Python 3.12 0.67x fell, " in text
    assert "compiled on PyTorch 2.5.1 1.00x unchanged" in text
    # Both follow from the three numbers above.
    assert "on PyTorch 2.6.0" not in text
    assert text.count("compiled ") == 2
    assert "only on" not in text


def test_a_case_is_listed_with_the_setting_at_which_its_axis_does_nothing(project: Path) -> None:
    slower = (
        ("3.12", "2.5.1", 1),
        ("3.13", "2.5.1", 1),
        ("3.12", "2.6.0", 0.4),
        ("3.13", "2.6.0", 4),
    )
    write_records(project / "results", *(timed_record(project, *one) for one in slower))
    text, error = run("py3.12-torch2.5.1", "py3.13-torch2.6.0")
    assert error is None
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert [line.partition(" [")[0] for line in lines] == [
        "Python 3.12 -> 3.13: compiled on PyTorch 2.5.1 1.00x",
        "PyTorch 2.5.1 -> 2.6.0: compiled on Python 3.12 0.40x",
    ]
    assert "on PyTorch 2.6.0 10.00x" in lines[0]


def test_of_three_axes_the_third_is_not_in_what_two_do_only_together() -> None:
    first, last = FIRST, Treatment("3.13", "2.6.0", "b" * 40)
    records = {
        corner: timed(corner, 2e-3 if corner.setting[:2] == (True, True) else 1e-3)
        for corner in corners_of(first, last)
    }
    found = judge_together(
        [attribute(records, ("python", "torch", "commit"), Known(0.005)) for _ in range(3)]
    )
    only = "only on Python 3.13 with PyTorch 2.6.0: compiled 2.00x"
    assert only in in_words(found[0], (first, last))
    whole = found[0]._replace(effects=overall(found), local=overall_local(found))
    # Two sessions on one side, and six on the other one.
    low = 2 / math.exp(session_reach("compiled") * math.sqrt((1 / 2 + 1 / 6) / 2))
    assert f"{only} [{low:.2f}, " in in_words(whole, (first, last))


def test_an_effect_of_an_axis_that_noise_lets_be_anywhere_says_what_it_is_in_each_cell() -> None:
    doubtful = attribute(by_effects(1.0, 1.0, 1.6), ("python", "torch"), Known(0.07))
    found = doubtful._replace(
        effects=tuple(
            e._replace(significant=len(e.factors) == 1 and e.significant) for e in doubtful.effects
        )
    )
    text = in_words(found, (FIRST, LAST))
    assert "slower on average (1.00x on Python 3.12, 1.60x on Python 3.13)" in text
    even = in_words(attribute(by_effects(1, 1.5), ("python", "torch"), Known(0.01)), (FIRST, LAST))
    assert "slower (1.50x on Python 3.12, 1.50x on Python 3.13)" in even


@settings(deadline=None)
@given(st.lists(st.floats(0.2, 5), min_size=3, max_size=3))
def test_without_interactions_the_effects_multiply_to_the_whole(factors: list[float]) -> None:
    first, last = FIRST, Treatment("3.13", "2.6.0", "b" * 40)
    logs = {
        corner.setting: sum(
            math.log(f) for f, on in zip(factors, corner.setting, strict=True) if on
        )
        for corner in corners_of(first, last)
    }
    found = {
        names: sum(weight * logs[setting] for setting, weight in weights.items())
        for names, weights in contrasts(factors_of(first, last))
    }
    whole = sum(effect for names, effect in found.items() if len(names) == 1)
    assert whole == pytest.approx(sum(map(math.log, factors)), abs=1e-9)
    assert all(abs(e) < 1e-9 for names, e in found.items() if len(names) > 1)


def test_noise_between_runs_makes_the_intervals_wide() -> None:
    quiet, noisy = (
        attribute(by_effects(1.0, 1.1), ("python", "torch"), Known(tau)) for tau in (0.005, 0.2)
    )
    widths = [
        next(e for e in one.effects if e.metric == "compiled" and e.factors == ("torch",))
        for one in (quiet, noisy)
    ]
    assert widths[0].word == "slower"
    assert widths[1].word == "inconclusive"


def test_what_is_shown_as_no_change_is_not_called_one() -> None:
    assert Effect(("torch",), "eager", 1.05, 1.004, 1.10).word == "inconclusive"
    assert Effect(("torch",), "eager", 0.95, 0.90, 0.996).word == "inconclusive"
    assert str(Effect(("torch",), "eager", 1.06, 1.01, 1.10)) == "eager 1.06x [1.01, 1.10] slower"


def test_a_speedup_rises_or_falls() -> None:
    assert str(Effect(("torch",), "speedup", 6.88, 6.5, 7.2)).endswith("[6.50, 7.20] rose")
    assert str(Effect(("torch",), "speedup", 0.5, 0.4, 0.6)).endswith("[0.40, 0.60] fell")


def test_eager_that_moves_with_compiler_flags_was_disturbed() -> None:
    moved = Effect(("flags",), "eager", 1.05, 1.03, 1.08)
    said = [
        [*disturbed_by([Attributed("box", "cpu", CASE, {}, (effect,))])]
        for effect in (moved, moved._replace(low=1), moved._replace(factors=("torch",)))
    ]
    assert list(map(len, said)) == [1, 0, 0]
    assert said[0][0].startswith("no compiler flag moves eager code, and eager moved with it")


def test_where_all_cells_fail_alike_nothing_is_attributed_and_the_commits_are_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shas = [git(project, "rev-parse", "HEAD")]
    commit(project, "another one")
    shas.append(git(project, "rev-parse", "HEAD"))
    reason = f"environment: {'no such wheel ' * 20}"

    def fail(
        _: Runs, ends: tuple[Treatment, Treatment], *__: object, **___: object
    ) -> list[Attributed]:
        corners = corners_of(*ends)
        return [Attributed("box", "cpu", CASE, dict.fromkeys(corners, reason), ())]

    monkeypatch.setattr("ivhl.cli.attribute.measure_corners", fail)
    cells = [f"py3.12-torch2.6.0@{sha}" for sha in shas]
    text, error = run(*cells, "--case", CASE, "--rounds", "1")
    assert isinstance(error, ResultsError)
    assert "each case fails in the same way in all cells" in str(error)
    for sha in shas:
        (line,) = [one for one in text.splitlines() if f"torch2.6.0@{sha[:8]}: " in one]
        assert line.endswith("…")
    monkeypatch.setattr(
        "ivhl.cli.attribute.measure_corners",
        lambda _, ends, *__, **___: [
            Attributed(
                "box",
                "cpu",
                CASE,
                dict(zip(corners_of(*ends), ("works", reason), strict=True)),
                (),
            )
        ],
    )
    text, error = run(*cells, "--case", CASE, "--rounds", "1")
    assert error is None
    assert "works -> environment: the commit" in text


def test_one_round_has_the_intervals_of_another_run(project: Path) -> None:
    """Two environments whose processes agree to 0.1 %, and that differ by 5 %."""
    runs = [
        replace(record, eager=slowed(record.eager, factor), calibration=None)
        for factor in (1.0, 1.05)
        if (record := timed_record(project, "3.12", "2.6.0", 1.0)).eager is not None
    ]
    corners = corners_of(FIRST, FIRST._replace(torch="2.6.0"))
    rounds = [dict(zip(corners, runs, strict=True))]

    def eager(n_rounds: int) -> Effect:
        found = attribute_measured(rounds * n_rounds, ("torch",), project / "results")
        return next(e for e in found.effects if e.metric == "eager")

    assert eager(1).word == "inconclusive"
    assert eager(1).low < 0.95
    assert eager(3).word == "slower"


def test_a_failure_in_a_corner_leaves_no_effects_and_says_whose_it_is() -> None:
    records = by_effects(1.0, 1.0)
    for corner in records:
        if corner.at == Treatment("3.13", "2.5.1", "a" * 40):
            records[corner] = make_failure(python="3.13", torch="2.5.1", commit="a" * 40)
    found = attribute(records, ("python", "torch"), Known(0.01))
    assert found.effects == ()
    text = "works in both cells; with only the second cell's Python: support_gate"
    assert found.whose(("python", "torch")) == text
    fails = {c: make_failure() if c.setting[1] else r for c, r in by_effects(1, 1).items()}
    found = attribute(fails, ("python", "torch"), Known(0.01))
    assert found.whose(("python", "torch")) == "works -> support_gate: PyTorch alone"
    fails = {c: make_failure() if all(c.setting) else r for c, r in by_effects(1, 1).items()}
    found = attribute(fails, ("python", "torch"), Known(0.01))
    assert "none of them alone" in found.whose(("python", "torch"))


def test_a_mean_over_cases_has_the_interval_that_the_cases_and_sessions_show() -> None:
    found = [
        attribute(by_effects(1.0, torch), ("python", "torch"), Known(0.01))
        for torch in (1.2, 1.25, 1.3)
    ]
    mean = {(e.factors, e.metric): e for e in overall(found)}[("torch",), "compiled"]
    assert mean.cases == 3
    # Two corners of four are on each side.
    of_sessions = math.exp(session_reach("compiled") / math.sqrt(2))
    assert of_sessions < mean.high / mean.ratio < 1.1 * of_sessions
    both = {(e.factors, e.metric): e for e in overall(found)}[("python", "torch"), "compiled"]
    assert both.high / both.ratio == pytest.approx(
        math.exp(session_reach("compiled") * math.sqrt(2))
    )
    in_turns = [one._replace(in_turns=True) for one in found]
    mean = {(e.factors, e.metric): e for e in overall(in_turns)}[("torch",), "compiled"]
    assert 1.15 < mean.low < mean.ratio < mean.high < 1.35


def test_of_many_cases_only_what_stands_out_of_all_is_said() -> None:
    def word(one: Attributed) -> str:
        by = {(e.factors, e.metric): e.word for e in one.effects}
        return by[("torch",), "compiled"]

    doubtful, none, clear = (
        attribute(by_effects(1.0, torch), ("python", "torch"), Known(0.05))
        for torch in (math.exp(0.128), 1.0, 3.0)
    )
    assert word(judge_together([doubtful])[0]) == "slower"
    together = judge_together([doubtful, *[none] * 20, clear])
    assert word(together[0]) == "inconclusive"
    assert word(together[-1]) == "slower"


def test_edges_differ_in_one_axis_and_other_measuring_is_refused() -> None:
    corners = corners_of(FIRST, LAST)
    assert len(edges_of(corners)) == 4
    assert len(edges_of(corners_of(FIRST, Treatment("3.13", "2.6.0", "b" * 40)))) == 12
    records = by_effects(1.0, 1.0)
    assert not_matched(records, ("python", "torch"), lambda *_: []) == []
    corner = corners[-1]
    records[corner] = replace(
        records[corner], conditions=replace(records[corner].conditions, threads=4)
    )
    reasons = not_matched(records, ("python", "torch"), lambda *_: [])
    assert len(reasons) == 2
    assert "threads 1 before, 4 now" in reasons[0]


def lock_text(root: Path, python: str, torch: str, *pins: str) -> None:
    path = root / "envs" / "locks" / f"py{python}-torch{torch}.txt"
    head = path.read_text().split("\n\n")[0]
    lines = "".join(
        f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(name_file.encode()).hexdigest()}\n"
        f"    # via {via}\n"
        for name, version, name_file, via in (pin.split() for pin in pins)
    )
    path.write_text(f"{head}\n\n{lines}")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    make_fleet_project(root)
    for python in ("3.12", "3.13"):
        for torch in ("2.5.1", "2.6.0"):
            lock_text(
                root, python, torch, f"torch {torch} torch-{torch} matrix.toml",
                "other 1.0 other-1.0 matrix.toml",
            )  # fmt: skip
    commit(root, "locks")
    monkeypatch.chdir(root)
    return root


def run(*arguments: str) -> tuple[str, IvhlError | None]:
    done = CliRunner().invoke(app, ["attribute", *arguments])
    return done.output, done.exception  # type: ignore[return-value]


def records_of(root: Path, **changes: object) -> list[RunRecord]:
    return [
        replace(timed_record(root, python, torch, 1.4 if torch == "2.6.0" else 1.0), **changes)  # type: ignore[arg-type]
        for python in ("3.12", "3.13")
        for torch in ("2.5.1", "2.6.0")
    ]


def timed_record(root: Path, python: str, torch: str, slower: float) -> RunRecord:
    record = a_record(root, python=python, torch=torch, speedup=2.0 / slower, width=0.001)
    compiled = Arm(calls=1, samples_s=(1e-3 * slower,) * 8)
    return replace(
        record, eager=Arm(calls=1, samples_s=(2e-3,) * 8), compiled=compiled, sources="5" * 64
    )


def test_the_command_says_whose_a_difference_is(project: Path) -> None:
    write_records(project / "results", *records_of(project))
    cells = ("py3.12-torch2.5.1", "py3.13-torch2.6.0")
    text, error = run(*cells, "--all")
    assert error is None
    assert "1 case in 4 cells, 1 measured in all of them" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert any(
        "PyTorch 2.5.1 -> 2.6.0: " in line and "speedup 0.71x" in line and "fell" in line
        for line in lines
    )
    assert any("Python 3.12 -> 3.13: " in line and "compiled 1.00x" in line for line in lines)
    printed = run(*cells, "--json")[0]
    SCHEMAS["attribution"].validate_json(printed)
    found = json.loads(printed)
    assert found["factors"] == ["python", "torch"]
    assert len(found["cases"][0]["effects"]) == 9
    one_axis, error = run("py3.12-torch2.5.1", "py3.12-torch2.6.0", "--case", CASE)
    assert error is None
    assert "compiled 1.40x" in one_axis


def test_records_of_another_commit_with_the_same_code_count(project: Path) -> None:
    cells = ("py3.12-torch2.5.1", "py3.13-torch2.6.0")
    *first, last = records_of(project)
    commit(project, "something else")
    later = replace(last, commit=git(project, "rev-parse", "HEAD"))
    write_records(project / "results", *first, replace(later, sources="7" * 64))
    text = str(run(*cells)[1])
    assert text.startswith("no case has records in all cells of the factorial")
    shutil.rmtree(project / "results")
    write_records(project / "results", *first, later)
    text, error = run(*cells)
    assert error is None
    assert "1 case in 4 cells, 1 measured in all of them" in text


def test_what_failed_before_its_code_was_known_counts_at_its_commit(project: Path) -> None:
    *kept, _, last = records_of(project)
    failed = make_failure("support_gate", "not supported").failure
    refused = a_record(project, python="3.13", torch="2.5.1", failure=failed, speedup=None)
    write_records(project / "results", *kept, refused, last)
    text, error = run("py3.12-torch2.5.1", "py3.13-torch2.6.0")
    assert error is None
    assert "support_gate" in text


def test_cells_that_differ_in_what_is_installed_are_refused(project: Path) -> None:
    # The same versions, and another file.
    lock_text(
        project, "3.13", "2.6.0", "torch 2.6.0 torch-2.6.0 matrix.toml",
        "other 1.0 other-1.0-rebuilt matrix.toml",
    )  # fmt: skip
    commit(project, "another file")
    write_records(project / "results", *records_of(project))
    _, error = run("py3.12-torch2.5.1", "py3.13-torch2.6.0")
    assert isinstance(error, LockError)
    assert "not matched" in str(error)
    assert "other 1.0 has no hash in common" in str(error)


def test_a_lock_that_nobody_has_and_an_existing_environment_are_refused(project: Path) -> None:
    installed = RecordedLocks(project, load_matrix(project / "envs" / "matrix.toml"))
    one, other, *_ = records_of(project)
    assert installed(one, other) == []
    gone = replace(other, cell=replace(other.cell, lock_sha256="f" * 64))
    assert installed(one, gone) == [
        "the lock ffffffffffff of py3.12-torch2.6.0 is in no commit here"
    ]
    loose = replace(other, cell=replace(other.cell, lock_sha256=None))
    assert "existing environment" in installed(one, loose)[0]


@pytest.mark.usefixtures("project")
def test_what_cannot_be_attributed_is_a_sentence() -> None:
    cells = ("py3.12-torch2.5.1", "py3.13-torch2.6.0")
    text = str(run(*cells)[1])
    assert text.startswith("no case has records in all cells of the factorial; none in py3.12")
    assert isinstance(run(*cells)[1], ResultsError)
    same = run(cells[0], cells[0])[1]
    assert isinstance(same, SpecError)
    assert "both cells are the same" in str(same)
    assert "unknown cell" in str(run(cells[0], "py3.13-torch9.9.9")[1])
    assert "--rounds: needs --case" in str(run(*cells, "--rounds", "2")[1])


def test_corners_are_measured_in_turns_and_each_round_is_one_comparison(project: Path) -> None:
    corners = corners_of(FIRST, LAST)
    asked: list[tuple[str, str]] = []

    def measure(request: Request, _: Console) -> None:
        (torch,) = request.releases
        asked.append((request.python, torch))
        assert request.effort.force
        record = timed_record(project, request.python, torch, 1.4 if torch == "2.6.0" else 1.0)
        drift = 1 + 0.05 * (len(asked) > 4)  # in the second round everything is slower
        assert record.eager is not None
        assert record.compiled is not None
        record = replace(
            record,
            commit=request.commit,
            recorded_at=f"2026-11-20T12:00:{len(asked):02}+00:00",
            eager=slowed(record.eager, drift),
            compiled=slowed(record.compiled, drift),
        )
        append_record(
            record_file(project / "results", "box", record.commit, record.cell.id), record
        )

    request = Request(root=project, python="3.12", machine="box", results=project / "results")
    runs = Runs(request, Console(file=StringIO()), measure)
    found = measure_corners(runs, (FIRST, LAST), [CASE], rounds=2, check=lambda _: None)
    cells = [(c.at.python, c.at.torch) for c in corners]
    assert asked == [*cells, *cells[1:], cells[0]]
    effects = {(e.factors, e.metric): e for e in found[0].effects}
    torch = effects[("torch",), "compiled"]
    assert torch.ratio == pytest.approx(1.4)
    assert torch.word == "slower"
    assert effects[("python",), "compiled"].word == "unchanged"


def test_corners_that_were_measured_before_a_kill_are_not_measured_again(project: Path) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []
    ends = FIRST, FIRST._replace(torch="2.6.0", flags=("inductor.cpp.simdlen=1",))
    last = 3

    def measure(request: Request, _: Console) -> None:
        if len(asked) == last:
            raise KeyboardInterrupt
        (torch,) = request.releases
        asked.append((torch, request.effort.flags))
        record = timed_record(project, request.python, torch, 1.0)
        conditions = replace(record.conditions, flags=request.effort.flags)
        record = replace(record, commit=request.commit, conditions=conditions)
        assert request.results is not None
        append_record(record_file(request.results, "box", record.commit, record.cell.id), record)

    request = Request(root=project, python="3.12", machine="box", results=project / "results")
    runs = Runs(request, Console(file=(printed := StringIO()), width=300), measure)
    with pytest.raises(KeyboardInterrupt):
        measure_corners(runs, ends, [CASE], rounds=2, check=lambda _: None)
    assert printed.getvalue().endswith("stopped: the same command goes on from there\n")
    last = 99
    measure_corners(runs, ends, [CASE], rounds=2, check=lambda _: None)
    assert "goes on in round 1: " in printed.getvalue()
    # Four corners in each of two rounds, those with flags among them; nothing is left over.
    assert len(asked) == len(set(asked)) * 2 == 8
    assert [*(project / ".asv" / "attribute").glob("*")] == []


def test_flags_are_an_axis_whose_records_answer_for_no_others(project: Path) -> None:
    flags = ("inductor.cpp.simdlen=1",)
    ends = FIRST, FIRST._replace(torch="2.6.0", flags=flags)
    assert factors_of(*ends) == ("torch", "flags")
    asked: list[tuple[str, tuple[str, ...]]] = []

    def measure(request: Request, _: Console) -> None:
        (torch,) = request.releases
        asked.append((torch, request.effort.flags))
        slower = (1.1 if torch == "2.6.0" else 1.0) * (3.0 if request.effort.flags else 1.0)
        record = timed_record(project, request.python, torch, slower)
        record = replace(
            record,
            commit=request.commit,
            recorded_at=f"2026-11-20T12:00:{len(asked):02}+00:00",
            conditions=replace(record.conditions, flags=request.effort.flags),
        )
        assert request.results is not None
        append_record(record_file(request.results, "box", record.commit, record.cell.id), record)

    def check(records: Mapping[Corner, RunRecord]) -> None:
        assert not not_matched(records, ("torch", "flags"), lambda *_: ())

    printed = StringIO()
    request = Request(root=project, python="3.12", machine="box", results=project / "results")
    runs = Runs(request, Console(file=printed, width=200), measure)
    (found,) = measure_corners(runs, ends, [CASE], rounds=2, check=check)
    assert "expected: 8 runs of 1 case; no record says what a run takes: " in printed.getvalue()
    assert re.search(
        r"left: 4 runs, of .* by the first round: .*\nround 2 of 2", printed.getvalue()
    )
    assert len(set(asked)) == 4
    compiled = {e.factors: e.ratio for e in found.effects if e.metric == "compiled"}
    assert compiled["torch",] == pytest.approx(1.1)
    assert compiled["flags",] == pytest.approx(3.0)
    assert compiled["torch", "flags"] == pytest.approx(1.0)
    kept = load_records(project / "results").records
    assert {record.conditions.flags for record in kept} == {()}


def test_runs_with_other_flags_are_not_compared(project: Path) -> None:
    one = timed_record(project, "3.12", "2.6.0", 1.0)
    other = replace(
        one, conditions=replace(one.conditions, flags=("dynamo.specialize_float=True",))
    )
    assert read_record(to_json(other).encode()) == other
    (why,) = differences(one, other, "commit")
    assert why == "compiler flags none before, dynamo.specialize_float=True now"
    assert differences(one, other, "flags") == []
    assert newest_key(project, one) != newest_key(project, other)


def test_another_build_of_a_python_is_named_beside_what_is_said_of_its_version(
    project: Path,
) -> None:
    builds = {"3.12": "GCC 12.2.0, glibc 2.36", "3.13": "GCC 14.2.0, glibc 2.41"}
    one, other = (
        replace(
            found := timed_record(project, python, "2.6.0", 1.0),
            conditions=replace(found.conditions, python_build=build),
        )
        for python, build in builds.items()
    )
    assert read_record(to_json(other).encode()) == other
    write_records(project / "results", one, other)
    said = (
        "these builds, not only these versions: Python built with GCC 12.2.0, glibc 2.36 before, "
        "with GCC 14.2.0, glibc 2.41 now"
    )
    shown = run("py3.12-torch2.6.0", "py3.13-torch2.6.0")[0]
    assert shown.count(said) == 1
    compared = CliRunner().invoke(app, ["compare", "3.12", "3.13"])
    assert compared.output.count(said) == 1
    # What older records do not say is said to be unknown.
    write_records(project / "results", *(timed_record(project, p, "2.6.0", 1.0) for p in builds))
    shown = run("py3.12-torch2.6.0", "py3.13-torch2.6.0")[0]
    assert shown.count(BUILDS_UNKNOWN) == 1
    assert CliRunner().invoke(app, ["compare", "3.12", "3.13"]).output.count(BUILDS_UNKNOWN) == 1
    # In one cell it is a reason.
    again = replace(one, conditions=replace(one.conditions, python_build=builds["3.13"]))
    assert "Python built with GCC 12.2.0" in " ".join(differences(one, again, "commit"))
    unknown = replace(one, conditions=replace(one.conditions, python_build=None))
    assert differences(one, unknown, "commit") == []
    assert differences(one, other, "python") == []


def newest_key(root: Path, record: RunRecord) -> object:
    """Return how a cell says that the newest record was made."""
    path = record_file(root / "elsewhere", "box", record.commit, record.cell.id)
    append_record(path, record)
    (key,) = newest_keys(path).values()
    return key


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("inductor.cpp.simdlen=1", Flag("torch._inductor.config", "cpp.simdlen", 1)),
        ("_inductor.config.cse='off'", Flag("torch._inductor.config", "cse", "off")),
        (
            "torch._dynamo.config.verbose=False",
            Flag("torch._dynamo.config", "verbose", value=False),
        ),
        ("functorch.a=off", Flag("torch._functorch.config", "a", "off")),
        ("inductor.a=FALSE", Flag("torch._inductor.config", "a", value=False)),
        ("inductor.a=b=c", Flag("torch._inductor.config", "a", "b=c")),
    ],
)
def test_a_flag_is_read_as_blame_and_as_people_write_it(text: str, flag: Flag) -> None:
    assert parse_flag(text) == flag
    assert parse_flag(str(flag)) == flag


@pytest.mark.parametrize("text", ["", "simdlen=1", "inductor.cpp.simdlen", "os.environ=1", "="])
def test_what_is_no_flag_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"--flag: must be PART\.FIELD=VALUE"):
        parse_flag(text)


def test_a_flag_gets_only_what_it_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch._made_up.config")
    module.switch, module.count, module.text, module.nothing = True, 3, "a", None  # type: ignore[attr-defined]

    class cpp:  # noqa: N801  (as settings in groups are)
        simdlen = None

    module.cpp = cpp  # type: ignore[attr-defined]
    module.number = module.word = None  # type: ignore[attr-defined]
    types = {"number": int | None, "word": str | None}
    module.get_type = types.get  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def put(field: str, value: object) -> object:
        return set_flag(Flag(module.__name__, field, value))

    assert put("switch", value=False) is True
    assert put("count", 4) == 3
    assert put("text", "b") == "a"
    assert put("nothing", "c") is None
    assert put("cpp.simdlen", 1) is None
    assert put("word", "d") is None
    assert [module.switch, module.count, vars(cpp)["simdlen"]] == [False, 4, 1]
    for field, value, said in (
        ("switch", "off", "is False, which no text can replace (got 'off')"),
        ("count", "many", "is 4, which no text can replace"),
        # PyTorch 2.15.0 compiles as before with inductor.cpp.simdlen=banana.
        ("number", "banana", "is None, which no text can replace"),
        ("cpp", 1, "is a group of settings"),
        ("cpp.nope", 1, "this release has no torch._made_up.config.cpp.nope"),
    ):
        with pytest.raises(NoSuchFlagError, match=re.escape(said)):
            put(field, value)


def test_a_flag_that_cannot_be_set_ends_the_comparison_at_once(project: Path) -> None:
    ends = FIRST, FIRST._replace(flags=("inductor.nope=1",))
    asked: list[tuple[str, ...]] = []

    def measure(request: Request, _: Console) -> None:
        asked.append(request.effort.flags)
        failed = make_failure(
            "unsupported", "--flag: this release has no torch._inductor.config.nope"
        )
        record = replace(
            timed_record(project, "3.12", "2.5.1", 1.0),
            commit=request.commit,
            failure=failed.failure,
            speedup=None,
        )
        record = replace(record, conditions=replace(record.conditions, flags=request.effort.flags))
        assert request.results is not None
        append_record(record_file(request.results, "box", record.commit, record.cell.id), record)

    request = Request(root=project, python="3.12", machine="box", results=project / "results")
    runs = Runs(request, Console(file=StringIO()), measure)
    with pytest.raises(SpecError, match=r"--flag: this release has no .*nope \(PyTorch 2\.5\.1\)"):
        measure_corners(runs, ends, [CASE], rounds=2, check=lambda _: None)
    assert asked == [("inductor.nope=1",)]


def test_flags_need_rounds_and_results_of_their_own(project: Path) -> None:
    cell, flag = "py3.12-torch2.6.0", "inductor.cpp.simdlen=1"
    assert "--flag: needs --case and --rounds" in str(run(cell, "--flag", flag)[1])
    done = CliRunner().invoke(app, ["bench", "--python", "3.12", "--flag", flag])
    assert "would replace records without flags" in str(done.exception)
    there = ["--results", str(project / "results")]
    done = CliRunner().invoke(app, ["bench", "--python", "3.12", "--flag", flag, *there])
    assert "would replace records without flags" in str(done.exception)
