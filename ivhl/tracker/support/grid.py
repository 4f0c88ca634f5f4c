"""What works in each cell of a place, and what it is worth, as tables and pages show it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.wording import STATUS_WORDS, STATUSES, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ivhl.records.identity import CaseInCell
    from ivhl.tracker.support.compat import Row
    from ivhl.tracker.wording import Status


@dataclass(frozen=True, slots=True)
class Share:
    """How many of a cell's cases have a status."""

    status: Status
    word: str
    count: int
    start: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One Python with one PyTorch release.

    Attributes:
        word: What most cases are, if none has a speedup; else how many work.
        worth: Geometric mean of the speedups on the matched set; empty if it has none.
        text: The shares as text.
    """

    href: str
    word: str
    worth: str
    text: str
    shares: tuple[Share, ...]


def by_place(rows: Iterable[Row]) -> Mapping[tuple[str, str], tuple[Row, ...]]:
    """Return the rows of each machine and device, that with the most complete records first."""
    groups = grouped_by(rows, lambda row: (row.machine, row.device))

    def rank(place: tuple[str, str]) -> tuple[int, str, tuple[str, str]]:
        measured = [row for row in groups[place] if row.recorded is not None]
        newest = max((row.recorded_at or "" for row in measured), default="")
        return -len({(row.cell, row.series) for row in measured}), newest, place

    return {place: tuple(groups[place]) for place in sorted(groups, key=rank)}


def matched_cases(rows: Iterable[Row]) -> frozenset[CaseInCell]:
    """Return the cases with a speedup in every cell that has at least half as many as the best.

    Means of cells are over these, wherever one is shown: a mean over whatever passed gets better
    when the slowest case breaks. Cells of which only a few cases were run would leave nothing; they
    have no mean.

    Args:
        rows: All rows of one machine and device.
    """
    passed: dict[str, set[CaseInCell]] = defaultdict(set)
    for row in rows:
        if row.speedup is not None:
            passed[row.cell].add(row.series)
    most = max(map(len, passed.values()), default=0)
    full = [found for found in passed.values() if 2 * len(found) >= most]
    return frozenset(set.intersection(*full)) if full else frozenset()


def cell_mean(rows: Iterable[Row], matched: frozenset[CaseInCell]) -> float | None:
    """Return the geometric mean of a cell's speedups over the matched cases.

    ``None`` unless all of them passed.
    """
    logs = [
        math.log(row.speedup) for row in rows if row.series in matched and row.speedup is not None
    ]
    return math.exp(fmean(logs)) if logs and len(logs) == len(matched) else None


def grid_cell(rows: Iterable[Row], href: str, matched: frozenset[CaseInCell]) -> GridCell | None:
    """Return what the cases of a cell are; ``None`` if none was run.

    Args:
        rows: All of the cell.
        href: Address of its cases.
        matched: The cases that every mean is over.
    """
    run = [row for row in rows if row.status != "not_run"]
    if not run:
        return None
    counts = Counter(row.status for row in run)
    good = sum(row.passes for row in run)
    mean = cell_mean(run, matched)
    shares, start = [], 0.0
    for status in STATUSES:
        if counts[status]:
            width = 100 * counts[status] / len(run)
            shares.append(Share(status, STATUS_WORDS[status], counts[status], start, width))
            start += width
    others = [f"{share.count} {share.word}" for share in shares if share.status != "works"]
    if expected := sum(row.is_failure and row.expectation is not None for row in run):
        others.append(f"{expected} of them expected")
    if fixed := sum(row.is_fixed for row in run):
        others.append(f"{fixed} fixed")
    return GridCell(
        href=href,
        word=f"{good} of {len(run)} pass"
        if good
        else f"all {shares[0].word}"
        if len(shares) == 1
        else "none passes",
        worth="" if mean is None else times(mean),
        text=", ".join(others) if good or len(shares) > 1 else "",
        shares=tuple(shares),
    )
