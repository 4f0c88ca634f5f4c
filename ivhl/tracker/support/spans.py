"""What works in each cell of a place, and what it is worth, as tables and pages show it.

Of many cells in intervals: "unsupported 2.4.1 to 2.5.1, works 2.6.0 to 2.8.0, fails 2.9.1, ...".
Real support has holes, so first good and last bad do not describe it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import Row, is_prerelease, release_key
from ivhl.tracker.wording import STATUS_WORDS, STATUSES, Status, counted, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.records.identity import CaseInCell


K = TypeVar("K")


class Span(NamedTuple):
    """Neighbouring releases with the same word.

    Attributes:
        word: What all of them are, e.g. ``works``.
        tried: The releases that were run, oldest first.
        skipped: Releases between them that were not run.
    """

    word: str
    tried: tuple[str, ...]
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        """Return e.g. ``works 2.4.1 to 2.8.0 (2.5.1 not run)``."""
        first, last = self.tried[0], self.tried[-1]
        ends = first if first == last else f"{first} to {last}"
        return f"{self.word} {ends}{_not_run(self.skipped)}"


def spans(words: Mapping[str, str], known: Iterable[str] = ()) -> tuple[Span, ...]:
    """Return the intervals of releases with the same word, then those of pre-releases.

    Args:
        words: Release to its word, for the releases that were run.
        known: All releases, so that one that was not run is named.
    """
    ordered = sorted({*words, *known}, key=lambda one: (is_prerelease(one), release_key(one)))

    def key(release: str) -> str:
        return release_key(release)[1].base_version if is_prerelease(release) else ""

    groups = (group for _, group in groupby(ordered, key))
    return tuple(span for group in groups for span in _spans(words, group))


def _spans(words: Mapping[str, str], releases: Iterable[str]) -> list[Span]:
    found: list[Span] = []
    between: list[str] = []
    for release in releases:
        if release not in words:
            between.append(release)
            continue
        if found and found[-1].word == words[release]:
            last = found[-1]
            skipped = (*last.skipped, *between)
            found[-1] = Span(last.word, (*last.tried, release), skipped)
        else:
            found.append(Span(words[release], (release,), ()))
        between = []
    return found


def spans_of(rows: Iterable[Row], known: Iterable[str] = ()) -> tuple[Span, ...]:
    """Return the intervals of one case on one Python; its status, or the class of its failure."""
    words = {row.torch: word_of(row) for row in rows if row.status != "not_run"}
    return spans(words, known)


def spans_sentence(found: Sequence[Span]) -> str:
    """Return the intervals in one line."""
    return ", ".join(map(str, found)) or "not run"


def word_of(row: Row) -> str:
    """Return the status of a case in words; of a failure, its class."""
    word = STATUS_WORDS[row.status]
    if row.status == "failed" and row.failure_class:
        return f"fails ({row.failure_class.replace('_', ' ')})"
    return word


def words_of_cells(cells: Mapping[K, Sequence[Row]]) -> dict[K, str]:
    """Return what the cases of each cell are, of cells that are set beside each other."""
    most = max(map(cases_run, cells.values()), default=0)
    return {cell: word_of_cases(rows, most) for cell, rows in cells.items()}


def cases_run(rows: Iterable[Row]) -> int:
    """Return how many cases of a cell were run: where none can be installed, none was."""
    return sum(row.status not in ("not_run", "unavailable") for row in rows)


def word_of_cases(rows: Sequence[Row], most: int) -> str:
    """Return what cases of a cell are, e.g. ``works (1 of 26 wrong, 2 fail)``.

    One that is slower than eager works. If none does, what most are. A cell in which fewer than half
    of the cases were run, as a search runs a single one, has no word but their number.

    Args:
        rows: Cases of the cell.
        most: Number of cases in the cell with most.
    """
    tried = [row for row in rows if row.status != "unavailable"]
    if tried and not ran_enough(len(tried), most):
        return f"only {len(tried)} of {counted(most, 'case')} run with"
    part = f"{len(tried)} of {most} run" if len(tried) < most else ""
    if not any(row.passes for row in rows):
        word = Counter(map(word_of, rows)).most_common(1)[0][0]
        return f"{word} ({part})" if tried and part else word
    if len(tried) == 1:
        return word_of(tried[0])
    wrong = sum(row.status == "wrong" for row in tried)
    fails = sum(not row.passes for row in tried) - wrong
    worse = [f"{n} {word}" for n, word in ((wrong, "wrong"), (fails, "fail")) if n]
    number, _, rest = ", ".join(worse).partition(" ")
    said = ", ".join(filter(None, [f"{number} of {len(tried)} {rest}" if worse else "", part]))
    return f"works ({said})" if said else "works"


def ran_enough(cases: int, most: int) -> bool:
    """Return whether so many cases of a cell allow a word on it, beside the most of any cell."""
    return 2 * cases >= most


def _not_run(skipped: Sequence[str]) -> str:
    if not skipped:
        return ""
    if len(skipped) == 1:
        return f" ({skipped[0]} was not run)"
    return f" ({counted(len(skipped), 'release')} between not run)"


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
