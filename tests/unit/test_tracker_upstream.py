"""Reports of PyTorch are named for what records show, and for nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ivhl.observatory.record import read_observed
from ivhl.tracker.support.upstream import Issue, described, issues_of, known_issues, of_script
from studies.stored import load_records
from tests.builders.records import make_failure, make_record

SCRIPTS = Path(__file__).parents[1] / "e2e" / "reproducers"
RESULTS = Path(__file__).parents[2] / "results"
OBSERVED = read_observed(RESULTS.with_name("observatory") / "records", print).values()
FAILED = tuple(record for record in load_records(RESULTS).records if record.failure)


@pytest.mark.parametrize("issue", known_issues(), ids=lambda issue: issue.url.rpartition("/")[2])
def test_each_report_describes_a_committed_record(issue: Issue) -> None:
    if issue.script:
        return
    of_library = {f"{one.library}: {one.case}" for one in OBSERVED if one.status == "wrong"}
    messages = [one.failure.message for one in OBSERVED if one.failure]
    assert (
        any(issue.describes(record) for record in FAILED)
        or any(map(issue.names, of_library))
        or any(issue in described(message) for message in messages)
    )
    assert issue.message or issue.failure_class


REPRODUCERS = {path: path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*.py")}


@pytest.mark.parametrize(
    "issue", [one for one in known_issues() if one.script], ids=lambda issue: issue.short
)
def test_a_report_of_a_script_is_found_for_ours_and_for_no_script_of_another(issue: Issue) -> None:
    torch = issue.releases[-1] if issue.releases else "2.15.0"
    found = {
        path.stem: text
        for path, text in REPRODUCERS.items()
        if issue in of_script(text, issue.stage, torch)
    }
    others = re.compile(r"pytorch/(?:issues|pull)/(?!" + issue.url.rpartition("/")[2] + r"\b)")
    assert found
    assert [name for name, text in found.items() if others.search(text)] == []
    assert all(of_script(text, "another", torch) == () for text in found.values())


def test_a_report_is_named_for_its_message_only() -> None:
    gate = make_failure("support_gate", "RuntimeError: Dynamo is not supported on Python 3.13+")
    (issue,) = issues_of(gate)
    assert issue.url.endswith("/144048")
    assert issues_of(make_failure("support_gate", "Dynamo is not supported on Windows")) == ()
    assert issues_of(make_record()) == ()


def test_a_report_with_releases_is_named_for_these_only() -> None:
    wrong = Issue(url="u", title="t", failure_class="wrong", releases=("2.5.1",))
    assert wrong.describes(make_failure("wrong", "", torch="2.5.1"))
    assert not wrong.describes(make_failure("wrong", "", torch="2.15.0"))
    assert not wrong.describes(make_failure("crash", "", torch="2.5.1"))
