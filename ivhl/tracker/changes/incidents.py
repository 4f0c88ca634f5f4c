"""What every command and page says of changes: how many of which kind, their state, their cause."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ivhl.records.identity import case_of
from ivhl.tracker.changes.confirmations import CONFIRMED, REFUTED, Confirmation, confirmation_of
from ivhl.tracker.changes.kinds import BETTER, KINDS, WORSE, Between, Kind
from ivhl.tracker.changes.series import ALONG
from ivhl.tracker.support.compat import NONE_EXPECTED
from ivhl.tracker.support.known import KnownCause, causes_of, known_causes
from ivhl.tracker.wording import counted, failed_as

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.records.identity import CaseInCell
    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.comparable import Axis
    from ivhl.tracker.changes.compare import Comparison
    from ivhl.tracker.changes.regressions import Change
    from ivhl.tracker.support.expectations import ChangeNote, Expectation, Expectations
    from ivhl.tracker.support.known import Sign

# A kind beside a number, where the word is another one.
_PLURALS: Final[dict[Kind, str]] = {"fails": "fail"}
STATES: Final = {
    "suspected": "suspected: the newest point",
    "persists": "persists: later points show it, too",
    "over": "over: the case has come back since",
    CONFIRMED: "confirmed: both commits were measured again, in turns",
    REFUTED: "not confirmed: both commits were measured again, in turns, and did not show it",
}


@dataclass(frozen=True, slots=True)
class KnownCauses:
    """What is kept about changes beside the records, by people and by measuring again."""

    confirmations: Sequence[Confirmation] = ()
    expectations: Expectations = NONE_EXPECTED

    def cause(self, change: Change | Between) -> str:
        """Return why a case changed; empty if nobody knows.

        That is a note of the project, the reason of a known failure, or a known cause in PyTorch.
        """
        if note := note_on(change, self.expectations.notes):
            return note
        if (entry := self.expected(change)) is not None:
            return entry.why
        return "; ".join(map(str, causes_on(change)))

    def causes(self, changes: Sequence[Change | Between]) -> str:
        """Return the causes of changes, each with its number of changes; empty if none is known."""
        found = Counter(map(self.cause, changes))
        unknown = found.pop("", 0)
        if not unknown and len(found) == 1:
            return next(iter(found))
        of = counted(len(changes), "change")
        parts = [f"{text.rstrip('.')} ({n} of {of})" for text, n in found.most_common()]
        if parts and unknown:
            parts.append(f"cause of {unknown} not known")
        return "; ".join(parts)

    def expected(self, change: Change | Between) -> Expectation | None:
        """Return the known failure that a change is; ``None`` if no entry expects it."""
        if change.kind != "fails" or change.case.existing:
            return None
        case = change.case  # without the field along which it changed
        if change.along == "torch":
            case = case._replace(torch=change.place)
        elif change.along == "python":
            case = case._replace(python=change.place)
        return self.expectations.of(case, change.reason.partition(":")[0])

    def state(self, change: Change) -> str:
        """Return what is known of whether a change lasts or is real: a key of ``STATES``."""
        if change.state == "over":
            return "over"
        again = confirmation_of(change, self.confirmations)
        return (again.state(change) if again else "") or change.state

    def states(self, changes: Iterable[Change]) -> str:
        """Return how many changes are in each state, e.g. ``39 over, 3 persist``."""
        found = Counter(map(self.state, changes))
        return ", ".join(
            f"{n} {'persist' if state == 'persists' and n > 1 else state}"
            for state, n in found.items()
        )


def changes_between(
    found: Iterable[Comparison], old: Iterable[RunRecord], axis: Axis, before: str
) -> list[Between]:
    """Return what got worse or better in a comparison along commits, releases or Pythons.

    Args:
        found: The comparison.
        old: The records of the first side.
        axis: What was compared; along anything else there are no causes.
        before: The first side, as the records of the other have it: a release or Python.
    """
    failed = {case_of(one).along(axis): failed_as(one.failure) for one in old if one.failure}

    def place(record: RunRecord) -> str:
        cell = record.cell
        return {"torch": cell.torch, "python": cell.python}.get(axis, record.commit)

    return [
        Between(
            axis, before, place(one.after), one.case, one.kind,
            failed_as(one.after.failure) if one.after.failure else failed.get(one.case, one.reason),
        )
        for one in found
        if one.after is not None and one.kind in WORSE | BETTER and axis in ALONG
    ]  # fmt: skip


def counts_of(found: Mapping[Kind, int]) -> str:
    """Return how many there are of each kind, the worst first, e.g. ``3 fail, 1 slower``."""
    known = ((kind, found[kind]) for kind in KINDS if found.get(kind))
    return ", ".join(f"{n} {_PLURALS.get(kind, kind)}" for kind, n in known)


def counts_of_changes(changes: Sequence[Change]) -> str:
    """Return ``counts_of`` changes, of how many cases they are, and how many no two neighbours show.

    Without these, it is the count of ``ivhl compare`` over the cases of which both are neighbours. A
    case counts once in each cell; in ``ivhl course``, once on a machine.
    """
    text = counts_of(Counter(one.kind for one in changes))
    cases = len({one.case.row for one in changes})
    if cases < len(changes):
        text += f" in {counted(cases, 'case')}"
    levels = sum(one.of_levels for one in changes)
    return f"{text} ({levels} by levels over several releases)" if levels else text


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
