"""What ``ivhl gate --confirm`` decided, kept in ``results/confirmations.jsonl`` with the records."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from ivhl.records.age import recorded_rank
from ivhl.tracker.changes.kinds import KINDS, WORSE
from ivhl.tracker.changes.regressions import Change
from ivhl.tracker.store.kept import keep_lines, load_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ivhl.records.identity import CaseInCell
    from ivhl.tracker.changes.regressions import History
    from ivhl.tracker.store.entries import Entry

NAME: Final = "confirmations.jsonl"
# What measuring both commits again can say.
_VERDICTS: Final = (
    "fails", "degraded", "slower", "inconclusive", "fixed", "faster", "unchanged",
)  # fmt: skip
# What measuring again says of a change that went its way, and of one that it did not show.
_HASH: Final = re.compile("[0-9a-f]{40}")
CONFIRMED: Final = "confirmed"
REFUTED: Final = "not confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What measuring both commits again, in turns, said of a case.

    Attributes:
        case: Workload, size and variant.
        base: Full hash, as ``head``.
        verdict: The kind of change (``changes.Kind``).
        text: The facts or quantities that decided.
        at: When it was decided, UTC.
    """

    machine: str
    python: str
    torch: str
    case: str
    base: str
    head: str
    verdict: str
    rounds: int
    text: str
    at: str

    def is_in(self, case: CaseInCell) -> bool:
        """Return whether it is a case in its cell that was measured again."""
        measured = self.machine, self.python, self.torch, self.case, False
        return (case.machine, case.python, case.torch, case.name, case.existing) == measured

    def is_of(self, change: Change) -> bool:
        """Return whether exactly this change was measured again."""
        ends = change.along, change.before, change.place
        return ends == ("commit", self.base, self.head) and self.is_in(change.case)

    def state(self, change: Change) -> str:
        """Return ``CONFIRMED`` or ``REFUTED``; empty if it decided nothing about the change.

        It judges compiled code, so nothing is decided about eager code that takes longer.
        """
        if change.kind == "eager slower" or self.verdict == "inconclusive":
            return ""
        if self.verdict == "unchanged":
            return REFUTED
        return CONFIRMED if (self.verdict in WORSE) == (change.kind in WORSE) else REFUTED


def load_confirmations(results: Path) -> tuple[Confirmation, ...]:
    """Return all confirmations, oldest first.

    Raises:
        ResultsError: If a line is none; names the line.
    """
    return load_lines(results / NAME, _confirmation, "confirmation", "ivhl gate --confirm")


def keep_confirmations(results: Path, confirmations: Iterable[Confirmation]) -> None:
    """Append confirmations.

    Raises:
        ResultsError: If the file cannot be written.
    """
    keep_lines(results / NAME, map(asdict, confirmations))


def confirmation_of(change: Change, confirmations: Iterable[Confirmation]) -> Confirmation | None:
    """Return the last confirmation of a change."""
    found = [one for one in confirmations if one.is_of(change)]
    return found[-1] if found else None


def _confirmation(data: Any) -> Confirmation:  # noqa: ANN401  (JSON)
    if not isinstance(data, dict) or data.keys() != get_type_hints(Confirmation).keys():
        raise ValueError(f"its fields must be {', '.join(get_type_hints(Confirmation))}")
    found = Confirmation(**data)
    for name, kind in get_type_hints(Confirmation).items():
        value = getattr(found, name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{name} must be of type {kind.__name__} (got {value!r})")
    for name in ("base", "head"):
        if not _HASH.fullmatch(value := getattr(found, name)):
            raise ValueError(f"{name} must be a full hash (got {value!r})")
    if found.base == found.head:
        raise ValueError(f"base and head must be two commits (got {found.base} twice)")
    if found.rounds < 1:
        raise ValueError(f"rounds must be at least 1 (got {found.rounds})")
    if datetime.fromisoformat(found.at).tzinfo is None:
        raise ValueError(f"at must have a time zone (got {found.at!r})")
    if found.verdict not in _VERDICTS:
        raise ValueError(f"verdict must be one of {', '.join(_VERDICTS)} (got {found.verdict!r})")
    return found


def with_confirmed(
    changes: Sequence[Change],
    confirmations: Iterable[Confirmation],
    history: History,
    commit_order: Sequence[str],
    *,
    wanted: Callable[[Entry], bool] = lambda _: True,
) -> tuple[Change, ...]:
    """Return the changes, and those that only measuring again has shown.

    A small step between two commits does not stand out of two records; the rounds that confirmed
    it are not in the history as points of their own.

    Args:
        changes: From ``find_changes``.
        confirmations: Oldest first; of several about one change the newest counts.
        history: Entries and their records.
        commit_order: Commits up to HEAD, oldest first.
        wanted: Which entries count.
    """
    newest = {
        (one.machine, one.python, one.torch, one.case, one.base, one.head): one
        for one in confirmations
    }
    more: list[Change] = []
    for one in newest.values():
        # That head is listed against whatever commit precedes it in the history. Of a base that does
        # not precede the head, the same rounds say the opposite, or nothing.
        if (
            one.verdict not in ("unchanged", "inconclusive")
            and not any(replace(one, base=change.before).is_of(change) for change in changes)
            and _leads(one.base, one.head, commit_order)
        ):
            course = [e for e in history.entries if one.is_in(e.case) and wanted(e)]
            more += _shown_by(one, course, history, commit_order)
    return (*changes, *more)


def _shown_by(
    one: Confirmation, course: Sequence[Entry], history: History, commit_order: Sequence[str]
) -> Iterator[Change]:
    """Yield the change that a confirmation shows, if the runs of its case have one at its head."""
    at_head = [entry for entry in course if entry.commit == one.head]
    if at_head:
        entry = max(at_head, key=recorded_rank)
        later = commit_order[commit_order.index(one.head) + 1 :]
        (record,) = history.read([entry])
        yield Change(
            along="commit",
            case=entry.case,
            before=one.base,
            place=one.head,
            kind=next(kind for kind in KINDS if kind == one.verdict),
            reason="the records of both commits alone do not show it",
            effect=None,
            state="persists" if any(e.commit in later for e in course) else "suspected",
            at=entry.recorded_at,
            command=record.command,
        )


def _leads(base: str, head: str, commit_order: Sequence[str]) -> bool:
    """Return whether the history has both commits, the base first."""
    places = [commit_order.index(one) for one in (base, head) if one in commit_order]
    return len(places) == 2 and places[0] < places[1]  # noqa: PLR2004  (both)
