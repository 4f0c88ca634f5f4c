"""Count the consecutive records of a case that can be compared (``ivhl results --pairs``)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from ivhl.instrument import version_of
from ivhl.tracker.store import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ivhl.records.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Counts of pairs of consecutive records of one case, in git's commit order.

    Attributes:
        total: All pairs.
        same_lock: Pairs with the same lock.
        same_text: Those of ``same_lock`` with the same text in ``conditions.instrument``: in
            ``ivhl.run/1``, the same bytes of measuring code.
        same_version: Those of ``same_lock`` with the same version of the instrument.
    """

    total: int
    same_lock: int
    same_text: int
    same_version: int


def count_pairs(records: Iterable[RunRecord], commit_order: Sequence[str]) -> Pairs:
    """Count the pairs of consecutive records: same machine, cell and case, next commit.

    Args:
        records: One per key (``load_records``).
        commit_order: Commits, oldest first; other commits count as older, ordered by time.
    """
    pairs = list(_neighbours(records, commit_order))
    locked = [(a, b) for a, b in pairs if a.cell.lock_sha256 == b.cell.lock_sha256]
    instruments = [(a.conditions.instrument, b.conditions.instrument) for a, b in locked]
    return Pairs(
        total=len(pairs),
        same_lock=len(locked),
        same_text=sum(a == b for a, b in instruments),
        same_version=sum(version_of(a) == version_of(b) for a, b in instruments),
    )


def _neighbours(
    records: Iterable[RunRecord], commit_order: Sequence[str]
) -> Iterator[tuple[RunRecord, RunRecord]]:
    position = {commit: i for i, commit in enumerate(commit_order)}

    def place(record: RunRecord) -> tuple[object, ...]:
        return (position.get(record.commit, -1), record.recorded_at)

    cases = sorted(records, key=lambda record: (_case(record), place(record)))
    for _, group in groupby(cases, key=_case):
        yield from pairwise(group)


def _case(record: RunRecord) -> tuple[object, ...]:
    return key_of(record)._replace(commit="")
