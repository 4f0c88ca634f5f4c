"""Count the consecutive records of a case that can be compared: ``python -m studies.pairs``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.git import commit_order
from ivhl.instrument import version_of
from ivhl.tracker.store import key_of, load_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ivhl.records.record import RunRecord


ROOT = Path(__file__).parents[1]


def main() -> None:
    """Print the counts of the committed records."""
    pairs = count_pairs(load_records(ROOT / "results").records, commit_order(ROOT))
    for count, what in (
        (pairs.total, "pairs of consecutive records: same machine, cell and case, next commit"),
        (pairs.same_lock, "of these with the same lock"),
        (pairs.same_text, "of those with the same text in conditions.instrument"),
        (pairs.same_version, "of those with the same version of the instrument"),
    ):
        print(f"{count:6d}  {what}")


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


def count_pairs(records: Iterable[RunRecord], order: Sequence[str]) -> Pairs:
    """Count the pairs of consecutive records: same machine, cell and case, next commit.

    Args:
        records: One per key (``load_records``).
        order: Commits, oldest first; other commits count as older, ordered by time.
    """
    pairs = list(_neighbours(records, order))
    locked = [(a, b) for a, b in pairs if a.cell.lock_sha256 == b.cell.lock_sha256]
    instruments = [(a.conditions.instrument, b.conditions.instrument) for a, b in locked]
    return Pairs(
        total=len(pairs),
        same_lock=len(locked),
        same_text=sum(a == b for a, b in instruments),
        same_version=sum(version_of(a) == version_of(b) for a, b in instruments),
    )


def _neighbours(
    records: Iterable[RunRecord], order: Sequence[str]
) -> Iterator[tuple[RunRecord, RunRecord]]:
    position = {commit: i for i, commit in enumerate(order)}

    def place(record: RunRecord) -> tuple[object, ...]:
        return (position.get(record.commit, -1), record.recorded_at)

    cases = sorted(records, key=lambda record: (_case(record), place(record)))
    for _, group in groupby(cases, key=_case):
        yield from pairwise(group)


def _case(record: RunRecord) -> tuple[object, ...]:
    return key_of(record)._replace(commit="")


if __name__ == "__main__":
    main()
