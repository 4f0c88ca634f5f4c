"""Known failures are expected, and what passes is fixed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import FixedError, IvhlError, SpecError
from ivhl.records.identity import CaseInCell
from ivhl.tracker.changes.gate import judge
from ivhl.tracker.store.entries import recorded
from ivhl.tracker.support.compat import Row, compat_rows, standings, unexpected
from ivhl.tracker.support.expectations import (
    EXPECTATIONS,
    Expectation,
    Expectations,
    load_expectations,
    never_covering,
    within,
)
from ivhl.tracker.views.project import load_state
from ivhl.tracker.views.project import rows_of as project_rows
from tests.builders.fleet import a_record, make_fleet_project, write_records
from tests.builders.project import make_commits
from tests.builders.records import COMMIT, make_failure, make_record
from tests.builders.site import parse_expectations

if TYPE_CHECKING:
    from ivhl.records.record import FailureClass, RunRecord
    from ivhl.tracker.wording import Status

ROOT = Path(__file__).parents[2]
HEAD = "f" * 40
GATE = """\
[[failure]]
python = ">=3.13"
torch = "<2.6"
workload = "ops.*"
class = "support_gate"
reason = "Dynamo does not know this Python"
link = "https://example.org/1"
"""
PASSES, FAILS = make_record(), make_failure("wrong", "")
RECORD = make_record()
_OUTCOMES = {None: "works", "wrong": "wrong"}


def row(
    python: str, torch: str, case: tuple[str, str, str, str], failed: FailureClass | None
) -> Row:
    """Return what was measured; only what expectations look at differs."""
    machine, workload, size, variant = case
    status: Status = _OUTCOMES.get(failed, "failed")  # type: ignore[assignment]
    return Row(
        python=python,
        torch=torch,
        cell=f"py{python}-torch{torch}",
        machine=machine,
        device="cpu",
        workload=workload,
        size=size,
        variant=variant,
        status=status,
        failure_class=failed,
        message="" if failed is None else f"{failed} in 3 places",
        recorded=recorded(RECORD),
    )


def test_what_the_projects_own_code_did_is_named_apart(project: Path) -> None:
    rows = [row("3.12", "2.6.0", ("box", "a.one", "small", "x"), "eager_failed")]
    assert unexpected(Expectations(), rows) == tuple(rows)
    text = GATE.replace("support_gate", "eager_failed")
    text = text.replace(">=3.13", "").replace("<2.6", "").replace("ops.*", "*")
    assert unexpected(parse_expectations(text), rows) == ()
    mistake = make_failure("eager_failed", "NameError: name 'x' is not defined")
    write_records(
        project / "results",
        a_record(
            project, variant="a", size="other",
            failure=mistake.failure, speedup=None, aa=None, compiled=None,
        ),
    )  # fmt: skip
    shown = CliRunner().invoke(app, ["check", "expectations"])
    assert "not expected: 1 failure (before compiling: fix them" in shown.output
    assert "not expected: 1 failure (write an entry for each cause)" in shown.output


@pytest.mark.parametrize(
    ("specifier", "version", "inside"),
    [
        (">=3.13", "3.13", True),
        (">=2.5,<2.6", "2.5.1", True),
        (">=2.5,<2.6", "2.6.0", False),
        (">=2.15", "2.16.0.dev20261101", True),
        ("==2.5.1", "2.5.1+cu121", True),
        ("", "2.5.1", True),
        (">=2", "nightly", False),
    ],
)
def test_ranges_are_those_of_pep_440_with_pre_releases(
    specifier: str,
    version: str,
    inside: bool,  # noqa: FBT001  (a parameter of the test)
) -> None:
    assert within(specifier, version) is inside


def test_all_mistakes_of_the_file_are_named_with_their_place() -> None:
    with pytest.raises(SpecError) as caught:
        parse_expectations(
            '[[failure]]\npython = "3.13"\ntorch = "<2.6"\nworkload = "a"\nclass = "broken"\n'
            'reason = ""\nlink = "javascript:alert(1)"\n[[failure]]\npyton = ">=3"\n'
        )
    text = str(caught.value)
    assert "failure.0.python: must be a range of versions" in text
    assert "(got '3.13')" in text
    assert "failure.0.class: must be 'support_gate'" in text
    assert "failure.0.reason: must not be empty" in text
    assert "failure.0.link: must be an address" in text
    assert "failure.1.pyton: is no known key; did you mean python?" in text
    assert "failure.1.torch: must be there" in text


def test_what_is_no_toml_is_named() -> None:
    with pytest.raises(SpecError, match="is not valid TOML"):
        parse_expectations("[[failure]\n")


def of_device(device: str) -> CaseInCell:
    return CaseInCell(
        machine="box", device=device, python="3.13", torch="2.5.1", existing=False,
        workload="ops.one", workload_version=1, size="small", variant="a",
    )  # fmt: skip


def test_a_gpu_is_its_type() -> None:
    expectations = parse_expectations(GATE + 'device = "cuda"\n')
    case = of_device("cuda NVIDIA H200")
    assert expectations.of(case, "support_gate") is not None
    assert expectations.of(case._replace(device="cpu"), "support_gate") is None


def test_a_failure_of_another_class_is_not_expected() -> None:
    expectations = parse_expectations(GATE)
    case = of_device("cpu")
    assert expectations.of(case, "support_gate") is not None
    assert expectations.of(case, "crash") is None
    assert expectations.of(case._replace(python="3.12"), "support_gate") is None
    entries = expectations.entries
    assert never_covering(entries, [case._replace(workload="other")]) == entries
    assert never_covering(entries, [case]) == ()


def judged(base: RunRecord, head: RunRecord, text: str) -> tuple[str, bool, str]:
    """Return kind, whether the gate fails for an entry, and the reason."""
    verdict = judge(
        [base, replace(head, commit=HEAD)], {COMMIT}, {HEAD},
        expectations=parse_expectations(text),
    )  # fmt: skip
    (found,) = verdict.findings
    return "expected" if found.is_expected else found.kind, bool(verdict.outdated), found.reason


WRONG = (
    '[[failure]]\npython = ""\ntorch = "==2.6.0"\nworkload = "*"\nclass = "wrong"\n'
    'reason = "known"\nlink = "https://example.org/2"\n'
)


def test_the_gate_forgives_what_is_expected_and_fails_for_what_is_fixed() -> None:
    kind, outdated, reason = judged(PASSES, FAILS, WRONG)
    assert (kind, outdated) == ("expected", False)
    assert "known (https://example.org/2)" in reason
    assert judged(PASSES, FAILS, "")[:2] == ("fails", False)
    assert judged(PASSES, make_failure("crash", ""), WRONG)[:2] == ("fails", False)
    assert judged(FAILS, PASSES, WRONG)[:2] == ("fixed", True)
    assert judged(PASSES, PASSES, WRONG)[:2] == ("unchanged", True)
    assert judged(FAILS, PASSES, "")[:2] == ("fixed", False)


def test_a_row_says_what_is_expected_of_it() -> None:
    expectations = parse_expectations(WRONG)
    (failed,) = compat_rows([FAILS], expectations=expectations)
    assert failed.to_dict()["expectation"] == {
        "class": "wrong", "reason": "known", "link": "https://example.org/2",
    }  # fmt: skip
    (passed,) = compat_rows([PASSES], expectations=expectations)
    assert passed.is_fixed
    existing = replace(PASSES, cell=replace(PASSES.cell, lock_sha256=None))
    (unlocked,) = compat_rows([existing], expectations=expectations)
    assert unlocked.expectation is None


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project of which one case fails in one cell."""
    make_fleet_project(tmp_path)
    gate = make_failure("support_gate", "Dynamo is not supported on Python 3.13+")
    failing = a_record(
        tmp_path, python="3.13", torch="2.5.1", variant="a",
        failure=gate.failure, speedup=None, aa=None, compiled=None,
    )  # fmt: skip
    write_records(tmp_path / "results", failing, a_record(tmp_path, variant="a"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_names_what_occurs_and_what_is_fixed(project: Path) -> None:
    path = project / EXPECTATIONS
    runner = CliRunner()
    shown = runner.invoke(app, ["check", "expectations"])
    assert "not expected: 1 failure" in shown.output
    path.write_text(GATE)
    found = json.loads(runner.invoke(app, ["check", "expectations", "--json"]).output)
    assert found["expected"][0]["occurs"][0]["cell"] == "py3.13-torch2.5.1"
    rows = json.loads(runner.invoke(app, ["compat", "--json"]).output)["rows"]
    assert [one["expectation"]["class"] for one in rows if one["expectation"]] == ["support_gate"]
    assert "expected: " in runner.invoke(app, ["compat", "--all"]).output
    path.write_text(
        path.read_text() + GATE.replace("ops.*", "ops.never") + WRONG.replace("*", "ops.one")
    )
    shown = runner.invoke(app, ["check", "expectations"])
    assert isinstance(shown.exception, FixedError)
    assert shown.exception.exit_code == 11
    assert "matches no measured case" in shown.output
    assert "fixed: 1 case: ops.one/" in shown.output


def test_the_command_lists_notes_on_changes_of_cases_that_nobody_measured(project: Path) -> None:
    note = '[[change]]\ntorch = ">=2.6"\nworkload = "{}"\nreason = "{}"\n'
    text = note.format("ops.never", "of another project") + note.format("ops.one", "of this one")
    (project / EXPECTATIONS).write_text(text)
    shown = CliRunner().invoke(app, ["check", "expectations"]).output
    assert "1 note on changes of unmeasured cases\n  of another project\n" in shown
    assert "of this one" not in shown


def test_the_gate_fails_until_the_entry_of_a_fixed_case_goes(project: Path) -> None:
    runner = CliRunner()
    make_commits(project, 1)  # of the same code
    arguments = ["gate", "--base", "HEAD~1", "--allow-missing"]
    assert runner.invoke(app, arguments).exit_code == 0
    (project / EXPECTATIONS).write_text(WRONG.replace("*", "ops.one"))
    shown = runner.invoke(app, arguments)
    assert isinstance(shown.exception, FixedError)
    assert "expects wrong: known (https://example.org/2)" in shown.output
    (project / EXPECTATIONS).write_text("[[failure]]\n")
    assert isinstance(runner.invoke(app, arguments).exception, SpecError)
    (project / EXPECTATIONS).unlink()
    assert runner.invoke(app, arguments).exit_code == 0


def test_the_committed_file_expects_what_the_committed_records_show() -> None:
    rows = project_rows(load_state(ROOT, ROOT / "results", history=False))
    expectations = load_expectations(ROOT)
    stood = standings(expectations, rows)
    assert [one.entry.title for one in stood if one.fixed or one.is_unmatched] == []
    assert unexpected(expectations, rows) == ()


def test_every_entry_is_readable_in_a_line() -> None:
    entry = Expectation.model_validate(
        {
            "python": ">=3.13", "torch": "", "workload": "a.*", "class": "wrong", "reason": "r",
            "free-threaded": True, "machine": "box",
        }
    )  # fmt: skip
    assert entry.title == "Python >=3.13, free-threaded, PyTorch any, a.*, box: wrong"
    assert entry.why == "r"
    assert issubclass(FixedError, IvhlError)
