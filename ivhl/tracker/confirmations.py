"""What ``ivhl confirm`` decided, kept in ``results/confirmations.jsonl`` under version control."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from ivhl.errors import ResultsError
from ivhl.records.files import append_line
from ivhl.tracker.regressions import WORSE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ivhl.tracker.regressions import Change

NAME: Final = "confirmations.jsonl"
# What measuring again says of a change that went its way, and of one that it did not show.
CONFIRMED: Final = "confirmed"
REFUTED: Final = "not confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What measuring both commits again, in turns, said of a case.

    Attributes:
        case: Workload, size and variant.
        base: Full hash, as ``head``.
        verdict: As in ``bench.confirm.Confirmed``.
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

    def is_of(self, change: Change) -> bool:
        """Return whether exactly this change was measured again."""
        case = change.case
        return (
            (change.along, change.before, change.place) == ("commit", self.base, self.head)
            and (case.machine, case.python, case.torch, case.name)
            == (self.machine, self.python, self.torch, self.case)
            and not case.existing
        )

    def state(self, change: Change) -> str:
        """Return ``CONFIRMED`` or ``REFUTED``; empty if it decided nothing about the change."""
        if self.verdict not in ("worse", "better", "refuted"):
            return ""
        same = self.verdict == ("worse" if change.kind in WORSE else "better")
        return CONFIRMED if same else REFUTED


def load_confirmations(results: Path) -> tuple[Confirmation, ...]:
    """Return all confirmations, oldest first.

    Raises:
        ResultsError: If a line is none; names the line.
    """
    path = results / NAME
    try:
        if not path.is_file():
            return ()
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ResultsError(
            f"{path}: cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    found = []
    # Not ``splitlines``: JSON may hold other separators of lines as they are.
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(_confirmation(json.loads(line)))
            except (ValueError, TypeError, RecursionError) as error:
                raise ResultsError(
                    f"{path}:{number}: no confirmation: {error}",
                    hint="correct or remove the line; ivhl confirm writes them",
                ) from error
    return tuple(found)


def keep_confirmations(results: Path, confirmations: Iterable[Confirmation]) -> None:
    """Append confirmations.

    Raises:
        ResultsError: If the file cannot be written.
    """
    path = results / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for one in confirmations:
            append_line(path, json.dumps(asdict(one)))
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {error}", hint="free space") from error


def confirmation_of(change: Change, confirmations: Iterable[Confirmation]) -> Confirmation | None:
    """Return the last confirmation of a change."""
    found = [one for one in confirmations if one.is_of(change)]
    return found[-1] if found else None


def _confirmation(data: Any) -> Confirmation:  # noqa: ANN401  (JSON)
    found = Confirmation(**data)
    for name, kind in get_type_hints(Confirmation).items():
        value = getattr(found, name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{name} must be of type {kind.__name__} (got {value!r})")
    return found
