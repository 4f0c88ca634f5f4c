"""The answers of a search, kept as soon as they are there: a search that was killed goes on."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from ivhl.bench.bisection.question import Answer
from ivhl.bench.experiment.journal import Journal, journal_of
from ivhl.errors import SpecError
from ivhl.instrument import INSTRUMENT

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.bench.bisection.question import Question
    from ivhl.bench.request import Request


_READER: Final = TypeAdapter(Answer)


def _about(question: Question, request: Request) -> list[str]:
    return [
        *(position.name for position in question.positions),
        *(question.positions[0].commit, question.python, question.positions[0].torch),
        *(question.case, question.sought, question.metric, str(request.machine), str(INSTRUMENT)),
        *(request.effort.device, str(request.effort.threads), question.tree),
    ]


def log_of_search(root: Path, question: Question, request: Request) -> Path:
    """Return the file in which the answers of a search are kept."""
    return journal_of(root, "bisect", _about(question, request))


class SearchJournal(Journal[Answer]):
    """The answers of a search, in a file.

    Args:
        question: The change to search for.
        request: The machine.

    Raises:
        SpecError: If an answer names a place that is not searched, or see ``Journal``.
    """

    def __init__(self, question: Question, request: Request) -> None:
        path = log_of_search(request.root, question, request)
        super().__init__(path, _about(question, request), _answer, "answer")
        places = (name for a in self.lines for name in (a.place, a.against, a.alike) if name)
        known = {position.name for position in question.positions}
        if strange := next((name for name in places if name not in known), None):
            raise SpecError(
                f"{path}: an answer names {strange!r:.60}, which is not between the ends",
                hint="--force forgets the answers of this search",
            )

    def keep(self, answer: Answer) -> None:
        """Keep an answer."""
        self.add(answer, asdict(answer))


def _answer(data: Any) -> Answer:  # noqa: ANN401  (JSON)
    """Return a line of the log.

    Raises:
        ValueError: If it is no answer that a search writes.
        TypeError: Likewise.
    """
    Answer(**data)  # names what is too much
    found = _READER.validate_python(data)
    moves = [(found.apart or 0.0, found.noise), *found.beside.values()]
    if not all(math.isfinite(one) for move in moves for one in move):
        raise ValueError("a number is not finite")
    if found.apart is not None and found.noise <= 0:
        raise ValueError(f"noise must be above 0 (got {found.noise})")
    return found
