"""What ``ivhl gate --confirm`` decides is kept, and shown beside the change that it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ivhl.asv.publish import publish
from ivhl.errors import ResultsError
from ivhl.tracker.changes.confirmations import (
    NAME,
    Confirmation,
    keep_confirmations,
    load_confirmations,
)
from ivhl.tracker.store.entries import recorded
from ivhl.tracker.views.incidents import regressions_view
from ivhl.tracker.views.project import State
from ivhl.tracker.views.source import Source, View
from tests.builders.fleet import make_fleet_project
from tests.builders.history import history, note_change

if TYPE_CHECKING:
    from pathlib import Path

COMMITS = ("a" * 40, "b" * 40)
STATE = State(
    name="demo",
    recorded=tuple(map(recorded, history(COMMITS))),
    problems=(),
    cells=(),
    releases=None,
    unavailable={},
    workloads=(),
    cases=(),
    commit_order=COMMITS,
)
# The fall from 2.15x to 1.20x of tests/builders/history.py.
FALL = Confirmation(
    machine="bench", python="3.12", torch="2.9.1", case="ops.gp_evolve/small/real-compiled",
    base=COMMITS[0], head=COMMITS[1], verdict="slower", rounds=3,
    text="compiled 1.81x [1.70, 1.92]", at="2026-11-23T10:00:00+00:00",
)  # fmt: skip


def fallen(*confirmations: Confirmation) -> View:
    """Return the fall as the page *Regressions* shows it."""
    view = regressions_view(Source(STATE, "now", confirmations))
    changes: list[View] = [
        change
        for one in view.incidents
        if one.along == "commit" and one.worse
        for change in one.changes
        if change.case == FALL.case and change.place == "bench, cpu, Python 3.12, PyTorch 2.9.1"
    ]
    (change,) = changes
    return change


def test_what_was_decided_is_read_as_it_was_written(tmp_path: Path) -> None:
    other = replace(FALL, verdict="unchanged", text="é\u202e<b>")
    keep_confirmations(tmp_path / "results", [FALL])
    keep_confirmations(tmp_path / "results", [other])
    assert load_confirmations(tmp_path / "results") == (FALL, other)
    assert load_confirmations(tmp_path) == ()


@pytest.mark.parametrize("line", [b"\xff\xfe", b"[" * 100_000, b"null", b'{"case": 1}'])
def test_a_line_that_is_none_is_named_and_the_site_does_without(
    tmp_path: Path, line: bytes
) -> None:
    make_fleet_project(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / NAME).write_bytes(b"\n" + line + b"\n")
    note_change(tmp_path, torch=">=2.6", reason="known")
    with pytest.raises(ResultsError, match=rf"{NAME}:2: no confirmation"):
        load_confirmations(tmp_path / "results")
    done = publish(tmp_path, tmp_path / "site", asv=False)
    (problem,) = done.problems
    assert problem.startswith(f"results/{NAME}:2: no confirmation")


def test_a_text_with_separators_of_lines_is_kept(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\x0bd\udc80"
    keep_confirmations(tmp_path, [replace(FALL, text=text)])
    (kept,) = load_confirmations(tmp_path)
    assert kept.text == text


@pytest.mark.parametrize("line", ["no json", "{}", '{"machine": 1}', "[]"])
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    keep_confirmations(tmp_path, [FALL])
    with (tmp_path / NAME).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ResultsError, match=f"{NAME}:2: no confirmation"):
        load_confirmations(tmp_path)


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"base": "a" * 8}, "base must be a full hash"),
        ({"head": "HEAD"}, "head must be a full hash"),
        ({"head": COMMITS[0]}, "base and head must be two commits"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"at": "yesterday"}, "Invalid isoformat"),
        ({"at": "2026-11-23T10:00:00"}, "at must have a time zone"),
    ],
)
def test_what_no_session_writes_is_no_confirmation(
    tmp_path: Path, changed: dict[str, Any], rule: str
) -> None:
    keep_confirmations(tmp_path, [FALL, replace(FALL, **changed)])
    with pytest.raises(ResultsError, match=f"{NAME}:2: no confirmation: {rule}"):
        load_confirmations(tmp_path)


@pytest.mark.parametrize(
    "commits",
    [
        {"base": COMMITS[1], "head": COMMITS[0]},
        {"base": "c" * 40},
        {"head": "c" * 40},
    ],
)
def test_commits_that_were_swapped_or_are_others_confirm_nothing(commits: dict[str, Any]) -> None:
    assert listed(SMALL) == [("slower", "confirmed", SMALL.case)]
    assert listed(replace(SMALL, **commits)) == []
    assert fallen(replace(FALL, **commits)).state == "suspected"


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        ("slower", "confirmed"),
        ("unchanged", "not confirmed"),
        ("faster", "not confirmed"),
        ("inconclusive", "suspected"),
        ("fails", "confirmed"),
    ],
)
def test_a_change_shows_what_was_decided_about_it(verdict: str, state: str) -> None:
    assert fallen().state == "suspected"
    found = fallen(FALL, replace(FALL, verdict=verdict))
    assert found.state == state
    assert found.again == "compiled 1.81x [1.70, 1.92], in 3 rounds"


@pytest.mark.parametrize(
    "other",
    [
        {"machine": "other"},
        {"torch": "2.8.0"},
        {"case": "ops.gp_evolve/small/naive-compiled"},
        {"base": "c" * 40},
        {"head": "c" * 40},
    ],
)
def test_another_change_says_nothing_about_it(other: dict[str, Any]) -> None:
    found = fallen(replace(FALL, **other))
    assert (found.state, found.again) == ("suspected", "")


SMALL = replace(
    FALL, torch="2.6.0", case="ops.field_superposition/small/naive-compiled",
    text="speedup 0.94x [0.91, 0.98]",
)  # fmt: skip


def listed(*confirmations: Confirmation) -> list[tuple[str, str, str]]:
    """Return kind, state and case of the changes along commits that the page shows."""
    view = regressions_view(Source(STATE, "now", confirmations))
    return [
        (change.kind, change.state, change.case)
        for one in view.incidents
        if one.along == "commit"
        for change in one.changes
        if change.case == SMALL.case
    ]


def test_what_only_measuring_again_has_shown_is_listed_once() -> None:
    assert listed() == []
    assert listed(SMALL) == [("slower", "confirmed", SMALL.case)]
    assert listed(SMALL, SMALL) == listed(SMALL)
    assert (
        listed(replace(SMALL, verdict="inconclusive"), replace(SMALL, verdict="unchanged")) == []
    )


def test_the_newest_of_several_decisions_about_a_change_counts() -> None:
    assert listed(SMALL, replace(SMALL, verdict="unchanged")) == []


@pytest.mark.parametrize(
    "changes", [{"machine": "other"}, {"head": "c" * 40}, {"python": "3.99"}, {"case": "gone/a/b"}]
)
def test_a_decision_about_what_has_no_record_is_not_listed(changes: dict[str, Any]) -> None:
    assert listed(replace(SMALL, **changes)) == []


def test_nothing_is_decided_about_eager_code_that_takes_longer() -> None:
    """Refuted means that compiled code stayed; so it did, and that is no word on eager code."""
    source = Source(STATE, "now")
    (change,) = (one for one in source.changes if one.kind == "slower" and FALL.is_of(one))
    refuted = replace(FALL, verdict="unchanged")
    assert refuted.state(change)
    assert not refuted.state(replace(change, kind="eager slower"))
