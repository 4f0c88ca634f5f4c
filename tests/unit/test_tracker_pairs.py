"""Consecutive records of a case, and which of them can be compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from studies.pairs import Pairs, count_pairs, main
from tests.builders.records import make_record

if TYPE_CHECKING:
    import pytest

    from ivhl.records.record import RunRecord

COMMITS = tuple(digit * 40 for digit in "abcd")


def at(commit: str, instrument: str, lock: str = "ab" * 32, **changes: Any) -> RunRecord:  # noqa: ANN401
    record = make_record(commit=commit * 40, **changes)
    return replace(
        record,
        cell=replace(record.cell, lock_sha256=lock),
        conditions=replace(record.conditions, instrument=instrument),
    )


def test_pairs_are_the_same_case_at_the_next_commit_with_a_record() -> None:
    records = [
        at("d", "4"),
        at("a", "2123dbd60a6f4e52"),
        at("b", "06a768ca2795d3d7"),
        at("c", "4", lock="cd" * 32),
        at("b", "4", size="medium"),
        at("a", "4", size="medium"),
        at("a", "4", python="3.13"),
        at("c", "4", variant="other"),
    ]
    expected = Pairs(total=4, same_lock=2, same_text=1, same_version=2)
    assert count_pairs(records, COMMITS) == expected
    assert count_pairs(reversed(records), COMMITS) == expected


def test_an_unknown_instrument_is_compared_with_itself_only() -> None:
    records = [at("a", "0" * 16), at("b", "0" * 16), at("c", "1" * 16), at("d", "4")]
    assert count_pairs(records, COMMITS) == Pairs(
        total=3, same_lock=3, same_text=1, same_version=1
    )


def test_without_records_there_are_no_pairs() -> None:
    assert count_pairs([], COMMITS) == Pairs(total=0, same_lock=0, same_text=0, same_version=0)


def test_the_study_counts_pairs_of_the_committed_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main()
    lines = capsys.readouterr().out.splitlines()
    counts = [int(line.split()[0]) for line in lines]
    assert counts[0] >= counts[1] >= counts[3] > counts[2] > 100
    assert max(map(len, lines)) <= 80
