"""Support in intervals: "unsupported 2.4.1 to 2.5.1, works 2.6.0 to 2.8.0, fails 2.9.1, ...".

Real support has holes, so first good and last bad do not describe it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ivhl.tracker.support.compat import Row, release_key
from ivhl.tracker.wording import STATUS_WORDS, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
    """Return the intervals of releases with the same word.

    Args:
        words: Release to its word, for the releases that were run.
        known: All releases, so that one that was not run is named.
    """
    found: list[Span] = []
    between: list[str] = []
    for release in sorted({*words, *known}, key=release_key):
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
    return tuple(found)


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
