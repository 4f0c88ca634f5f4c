"""Why a case changed between two commits, releases or Pythons, as far as somebody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ivhl.tracker.support.known import KnownCause, causes_of, known_causes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.records.identity import CaseInCell
    from ivhl.tracker.changes.kinds import Between
    from ivhl.tracker.changes.regressions import Change
    from ivhl.tracker.support.expectations import ChangeNote
    from ivhl.tracker.support.known import Sign

# Kinds of a change at which one side begins to take longer, and at which this ends. If eager code
# gets slower, the speedup rises.
_ENTERED: Final = {"compiled": {"slower"}, "eager": {"eager slower", "faster"}}
_LEFT: Final = {"compiled": {"faster"}, "eager": set[str]()}


def note_on(change: Change | Between, notes: Iterable[ChangeNote]) -> str:
    """Return what the project says of a change, the last entry first; empty if it says nothing."""
    said = [note.why for note in notes if _is_of(note, change)]
    return said[-1] if said else ""


def causes_on(change: Change | Between) -> tuple[KnownCause, ...]:
    """Return the known causes of a change: of a failure, or of code that takes longer."""
    before, after = _sides(change)
    if change.kind in ("fails", "fixed"):  # of what is fixed, the reason is the failure before
        case = after if change.kind == "fails" else before
        failure_class, _, message = change.reason.partition(": ")
        return causes_of(case, failure_class, message)
    return tuple(
        one
        for one in known_causes()
        if any(_slows(sign, change, before, after) for sign in one.signs)
    )


def _slows(sign: Sign, change: Change | Between, before: CaseInCell, after: CaseInCell) -> bool:
    """Return whether a change is where the releases begin or end in which code takes longer."""
    if sign.side is None or sign.covers(before) == sign.covers(after):
        return False
    if sign.side == "eager" and change.kind == "faster" and change.effect_of != "speedup":
        return False
    kinds = _ENTERED if sign.covers(after) else _LEFT
    return change.kind in kinds[sign.side]


def _is_of(note: ChangeNote, change: Change | Between) -> bool:
    before, after = _sides(change)
    if note.commit:
        there = change.along == "commit" and change.place.startswith(note.commit)
        return there and note.covers(after)
    return note.covers(before) != note.covers(after)


def _sides(change: Change | Between) -> tuple[CaseInCell, CaseInCell]:
    """Return the case in its cell before a change, and after it."""
    case = change.case
    if change.along == "torch":
        return case._replace(torch=change.before), case._replace(torch=change.place)
    if change.along == "python":
        return case._replace(python=change.before), case._replace(python=change.place)
    return case, case
