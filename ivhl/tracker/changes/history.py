"""The changes of a whole history, which its index keeps until a record changes."""

from __future__ import annotations

from array import array
from dataclasses import astuple
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ivhl.records.identity import CaseInCell
from ivhl.tracker.changes.regressions import Change, detect_all, find_changes
from ivhl.tracker.changes.series import ALONG
from ivhl.tracker.store.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ivhl.tracker.changes.regressions import History
    from ivhl.tracker.changes.series import Along
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
    if not isinstance(history, Index) or spreads is not history.spreads:
        detect = history.detect if isinstance(history, Index) else detect_all
        return find_changes(history, spreads, commit_order, along, wanted=wanted, detect=detect)
    numbers = array("q", (entry.id for entry in history.entries if wanted(entry)))
    asked = sha256(numbers.tobytes() + "\0".join((*along, *commit_order)).encode()).hexdigest()

    def find() -> list[Any]:
        found = find_changes(
            history, spreads, commit_order, along, wanted=wanted, detect=history.detect
        )
        return [*map(astuple, found)]

    kept = history.kept(f"changes {asked}", find)
    return tuple(Change(name, CaseInCell(*case), *rest) for name, case, *rest in kept)
