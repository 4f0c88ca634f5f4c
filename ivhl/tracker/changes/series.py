"""Histories of one case: over our commits in one cell, or over releases or Pythons at one commit.

The identity of a series is complete: machine, device, Python, PyTorch, workload, version, size,
variant and precision, less the field along which it runs. What else changes along it is a mark, and
two neighbours that cannot be compared are a break, never a step.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from ivhl.records.age import recorded_rank
from ivhl.tracker.changes.comparable import differences
from ivhl.tracker.store.entries import Entry, code_of
from ivhl.tracker.store.records import grouped_by, newest_by
from ivhl.tracker.support.compat import is_free_threaded, python_key, release_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ivhl.records.identity import CaseInCell

K = TypeVar("K")
Along = Literal["commit", "torch", "python"]
ALONG: tuple[Along, ...] = get_args(Along)


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a series.

    Attributes:
        name: Commit, release or Python.
        marks: What differs from the point before, beside the field along which the series runs.
            With any mark, the two cannot be compared.
    """

    name: str
    entry: Entry
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one case, oldest or lowest first."""

    along: Along
    case: CaseInCell
    dtype: str
    points: tuple[Point, ...]

    def segments(self) -> tuple[tuple[Point, ...], ...]:
        """Return the runs of neighbours that can be compared."""
        found: list[list[Point]] = []
        for point in self.points:
            if point.marks or not found:
                found.append([])
            found[-1].append(point)
        return tuple(tuple(part) for part in found)


def series_of(
    entries: Iterable[Entry], along: Along, commit_order: Sequence[str] = ()
) -> tuple[Series, ...]:
    """Return all series along a field, sorted by case.

    Along releases and Pythons, a series is of one subject: the same sources and benchmark, or the
    same commit. Of several subjects, that with the most points is taken, then the newest. A series
    along Pythons has no free-threaded ones: 3.14t is not a step from 3.14 to 3.15.

    Args:
        entries: Any entries.
        along: The field.
        commit_order: Commits, oldest first. Others are left out of series along commits, since
            their place is unknown; without any order, time decides.
    """
    asked = (one for one in entries if along != "python" or not is_free_threaded(one.python))
    by_key = grouped_by(asked, lambda entry: (entry.case, entry.dtype))
    groups: dict[tuple[CaseInCell, str], list[Entry]] = defaultdict(list)
    for (_, dtype), part in by_key.items():
        groups[part[0].case.along(along), dtype] += part
    position = {commit: i for i, commit in enumerate(commit_order)}
    found = []
    for (case, dtype), group in sorted(groups.items(), key=itemgetter(0)):
        if along == "commit":
            chosen = _along_commits(group, position)
        else:
            chosen = _of_one_subject(group, along)
        found.append(Series(along, case, dtype, _points(chosen, along)))
    return tuple(found)


def _along_commits(group: Iterable[Entry], position: Mapping[str, int]) -> list[tuple[str, Entry]]:
    group = [entry for entry in group if not position or entry.commit in position]
    newest = newest_by(group, lambda entry: entry.commit)
    if position:
        return sorted(newest.items(), key=lambda item: position[item[0]])
    return sorted(newest.items(), key=lambda item: recorded_rank(item[1]))


def _of_one_subject(group: Iterable[Entry], along: Along) -> list[tuple[str, Entry]]:
    chosen = runs_of_one_code(group, attrgetter(along))
    order = release_key if along == "torch" else python_key
    return sorted(chosen.items(), key=lambda item: order(item[0]))


def runs_of_one_code(entries: Iterable[Entry], place: Callable[[Entry], K]) -> dict[K, Entry]:
    """Return the newest run at each place, of the code that ran at most places, then the newest."""
    codes = [newest_by(group, place) for group in grouped_by(entries, code_of).values()]
    return max(codes, key=lambda one: (len(one), max(map(recorded_rank, one.values()))))


def _points(chosen: Sequence[tuple[str, Entry]], along: Along) -> tuple[Point, ...]:
    points: list[Point] = []
    for name, entry in chosen:
        marks = differences(points[-1].entry, entry, along) if points else []
        points.append(Point(name, entry, tuple(marks)))
    return tuple(points)
