"""Records that are in memory, read as those of an index are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.tracker.store.course import point_of
from ivhl.tracker.store.entries import Entry, Ran, entry_of, ran_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.records.record import RunRecord


class MemoryHistory:
    """Records that are in memory, where others read an index."""

    token = ""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self._records = tuple(records)
        self.entries = tuple(entry_of(record, i) for i, record in enumerate(self._records))

    def read(self, entries: Iterable[Entry]) -> tuple[RunRecord, ...]:
        """Return the records of entries, in their order."""
        return tuple(self._records[entry.id] for entry in entries)

    def points(self, entries: Iterable[Entry]) -> list[str]:
        """Return the points of entries in a course."""
        return [point_of(entry) for entry in entries]

    def durations(self) -> dict[int, float]:
        """Return how long each case took, by ``Entry.id``."""
        return {i: record.duration_s for i, record in enumerate(self._records)}

    def ran(self, entries: Iterable[Entry]) -> list[Ran]:
        """Return what pages of runs show of entries."""
        return [ran_of(self._records[entry.id]) for entry in entries]
