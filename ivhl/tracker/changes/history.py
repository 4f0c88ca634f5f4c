"""The changes of a whole history, which its index keeps until a record changes."""

from __future__ import annotations

from array import array
from dataclasses import astuple
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING

from ivhl.records.identity import CaseInCell
from ivhl.tracker.changes.regressions import Change, detect_all, find_changes
from ivhl.tracker.changes.series import ALONG
from ivhl.tracker.store.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ivhl.tracker.changes.regressions import History
    from ivhl.tracker.changes.series import Along
    from ivhl.tracker.detection.changepoints import Searched
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.spread import Spreads


def changes_of(
    history: History,
    spreads: Spreads,
    commit_order: Sequence[str] = (),
    along: Iterable[Along] = ALONG,
    *,
    wanted: Callable[[Entry], bool] = lambda _: True,
) -> tuple[Change, ...]:
    """Return ``find_changes``; of an index with its own spreads, what it keeps of them.

    Args:
        history: Entries and their records.
        spreads: As for ``find_changes``, as are ``commit_order``, ``along`` and ``wanted``.
        commit_order: Commits up to HEAD, oldest first.
        along: The fields.
        wanted: Which entries count.
    """
    along = tuple(along)
    detect = partial(steps_in, history) if isinstance(history, Index) else detect_all

    def find() -> tuple[Change, ...]:
        return find_changes(history, spreads, commit_order, along, wanted=wanted, detect=detect)

    if not isinstance(history, Index) or spreads is not history.spreads:
        return find()
    numbers = array("q", (entry.id for entry in history.entries if wanted(entry)))
    asked = sha256(numbers.tobytes() + "\0".join((*along, *commit_order)).encode()).hexdigest()
    kept = history.kept(f"changes {asked}", lambda: [*map(astuple, find())])
    return tuple(Change(name, CaseInCell(*case), *rest) for name, case, *rest in kept)


def steps_in(index: Index, series: Sequence[Searched]) -> list[Sequence[int]]:
    """Return ``changepoints.detect_all`` of many series; the index keeps the answers."""
    questions = [f"steps {_digest_of(*one)}" for one in series]
    known: dict[str, Sequence[int]] = {}
    for question in set(questions):
        if (places := index.answer(question, lasts=True)) is not None:
            known[question] = places
    wanted = {q: one for q, one in zip(questions, series, strict=True) if q not in known}
    if wanted:
        found = dict(zip(wanted, detect_all([*wanted.values()]), strict=True))
        known |= found
        index.keep(found, lasts=True)
    return [known[question] for question in questions]


def _digest_of(values: Sequence[float], intervals: Sequence[tuple[float, float]]) -> str:
    numbers = array("d", chain(values, chain.from_iterable(intervals)))
    return sha256(numbers.tobytes()).hexdigest()[:32]
