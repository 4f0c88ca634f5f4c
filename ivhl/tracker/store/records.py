"""Group records and choose the newest; ``Problem`` is what cannot be read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ivhl.records.age import Dated, recorded_rank
from ivhl.records.identity import CaseInCell, type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from ivhl.records.record import RunRecord

T = TypeVar("T")
K = TypeVar("K")
R = TypeVar("R", bound=Dated)
C = TypeVar("C", bound="Committed")


class Committed(Dated, Protocol):
    """A record, or what the index keeps of one: of a commit, made at a time."""

    @property
    def commit(self) -> str:
        """The commit that was measured."""


def case_name(one: RunRecord | CaseInCell) -> str:
    """Return the name of a case, as ``workload.Case.name`` has it."""
    return f"{one.workload}/{one.size}/{one.variant}"


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or record in the results that could not be read.

    Attributes:
        line: Line in the file, from 1; ``None`` for the whole file.
        rule: The rule that it breaks, with the value seen.
    """

    path: Path
    line: int | None
    rule: str

    def seen_from(self, folder: Path) -> Problem:
        """Return the problem with its path relative to ``folder``, if the file is inside."""
        inside = self.path.is_relative_to(folder)
        return replace(self, path=self.path.relative_to(folder)) if inside else self

    def __str__(self) -> str:
        """Return ``file:line: rule``."""
        place = f"{self.path}" if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.rule}"


def device_type(record: RunRecord) -> str:
    """Return ``cpu`` or ``cuda``, without the GPU's name: the machine identifies the GPU."""
    return type_of(record.conditions.device)


def is_existing(record: RunRecord) -> bool:
    """Return whether it was measured in an existing environment, which no lock describes."""
    return record.cell.lock_sha256 is None


def grouped_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items of each key, in their order; of a key that none has, an empty list."""
    found: dict[K, list[T]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found


def newest_by(
    records: Iterable[R], key: Callable[[R], K], rank: Callable[[R], Any] | None = None
) -> dict[K, R]:
    """Return the newest record of each key: the answer of everything that shows or judges one.

    Args:
        records: Records, or entries of the index: the latest of each ``AtCommit``.
        key: What the records of one answer have in common.
        rank: What makes a record newer than another, by default ``recorded_rank``; the last of
            equals wins.
    """
    rank = rank or recorded_rank
    found: dict[K, R] = {}
    for record in records:
        known = found.get(one := key(record))
        if known is None or rank(known) <= rank(record):
            found[one] = record
    return found


def latest_of_cases(
    records: Iterable[C], case: Callable[[C], CaseInCell], commit_order: Sequence[str] = ()
) -> tuple[C, ...]:
    """Return the newest record for each machine, device, cell, workload, size and variant.

    An existing environment and the locked cell with the same id each keep their own record. Only
    the newest version of a workload counts: versions are not comparable.

    Args:
        records: Records of any commits, or what the index keeps of them.
        case: Returns what a record measured.
        commit_order: Commits, oldest first. A commit that it lacks (another branch) counts as older
            than all others. Time decides between such commits, and if the order is empty.
    """
    position = {commit: i for i, commit in enumerate(commit_order)}
    newest = newest_by(
        records, case, rank=lambda r: (position.get(r.commit, -1), recorded_rank(r), r.commit)
    )
    version = newest_versions(newest)
    return tuple(newest[c] for c in sorted(newest) if c.workload_version == version[c.workload])


def newest_versions(cases: Iterable[CaseInCell | RunRecord]) -> dict[str, int]:
    """Return the newest version of each workload that was measured."""
    version: dict[str, int] = {}
    for one in cases:
        version[one.workload] = max(version.get(one.workload, 0), one.workload_version)
    return version
