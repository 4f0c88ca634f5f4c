"""A run as a point on the timeline of its case: what pages draw and list.

The page of a case shows hundreds of points, and one commit more adds one. So the index keeps each
as the text that the page gets (``point_of``).
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ivhl.tracker.store.entries import Entry, entry_of
from ivhl.tracker.store.metrics import NORMAL_95, Measured, Metric
from ivhl.tracker.wording import marks, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ivhl.records.record import RunRecord


HASH: Final = 8  # characters of a commit that pages show
CURVES: Final = (
    *("speedup", "eager", "compiled", "cold", "warm", "memory", "low", "high", "memory_eager"),
    *("error", "error_eager", "breaks", "recompiles"),
)
# What a point holds, in this order.
FIELDS: Final = ("commit", "at", "same", "result", *CURVES)
_MEASURED: Final[tuple[Metric, ...]] = ("speedup", "eager", "compiled", "cold", "warm", "memory")
_ENCODE: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def point_of(entry: Entry) -> str:
    """Return the point of a run as JSON: a list of its ``FIELDS``."""
    values = curve_values(entry)
    head = [entry.commit[:HASH], entry.recorded_at, (entry.shown.same_as or "")[:HASH]]
    numbers = [short(values.get(name)) for name in CURVES]
    return _ENCODE([*head, _result(entry), *numbers])


def curve_values(entry: Entry) -> dict[str, float | None]:
    """Return the value of each curve that a run has."""
    values: dict[str, float | None] = {
        metric: entry.values[metric].value for metric in _MEASURED if metric in entry.values
    }
    if speedup := entry.values.get("speedup"):
        values |= dict(zip(("low", "high"), _ends(speedup), strict=True))
    shown = entry.shown
    return values | {
        "memory_eager": shown.eager_peak,
        "error": _largest_error(entry.errors),
        "error_eager": shown.eager_error,
        "breaks": shown.breaks,
        "recompiles": shown.recompiles,
    }


def short(value: float | None) -> float | None:
    """Return a number with few digits: the pages draw it."""
    return None if value is None else float(f"{value:.5g}")


def short_all(values: Sequence[float]) -> list[float]:
    """Return ``short`` of many numbers, in a third of the time."""
    text = ",".join(["%.4e"] * len(values))
    return json.loads(f"[{text % tuple(values)}]")  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)  # most runs of a case have the same
def _largest_error(errors: str) -> float | None:
    return max((error for _, error, _ in json.loads(errors) if error is not None), default=None)


def _ends(found: Measured) -> tuple[float, float]:
    """Return the ends of the 95 % interval within the run."""
    factor = math.exp(NORMAL_95 * found.error)
    return found.value / factor, found.value * factor


def _result(entry: Entry) -> str:
    text: str = entry.failure_class or ""
    if speedup := entry.values.get("speedup"):
        low, high = (times(end)[:-1] for end in _ends(speedup))
        text = f"{times(speedup.value)} [{low}, {high}]"
    notes = marks(entry.shown.reference, uncommitted=bool(entry.shown.uncommitted))
    return " · ".join((text, *notes))


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
