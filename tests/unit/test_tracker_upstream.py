"""Reports of PyTorch are named for what records show, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from ivhl.observatory.record import read_observed
from ivhl.tracker.support.upstream import Issue, issues_of, known_issues
from studies.stored import load_records
from tests.builders.records import make_failure, make_record

RESULTS = Path(__file__).parents[2] / "results"
OBSERVED = read_observed(RESULTS.with_name("observatory") / "records", print).values()
FAILED = tuple(record for record in load_records(RESULTS).records if record.failure)


@pytest.mark.parametrize("issue", known_issues(), ids=lambda issue: issue.url.rpartition("/")[2])
def test_each_report_describes_a_committed_record(issue: Issue) -> None:
    of_library = {f"{one.library}: {one.case}" for one in OBSERVED if one.status == "wrong"}
    assert any(issue.describes(record) for record in FAILED) or any(map(issue.names, of_library))
    assert issue.message or issue.failure_class


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
