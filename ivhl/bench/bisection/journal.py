"""The answers of a search, kept as soon as they are there: a search that was killed goes on."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from ivhl.bench.bisection.question import (
    Answer,
    Question,
)
from ivhl.errors import SpecError
from ivhl.instrument import INSTRUMENT
from ivhl.records.files import append_line
from ivhl.tracker.kept import load_lines

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.bench.request import Request


_READER: Final = TypeAdapter(Answer)


def log_of_search(root: Path, question: Question, request: Request) -> Path:
    """Return the file in which the answers of a search are kept."""
    about = [
        *(position.name for position in question.positions),
        *(question.positions[0].commit, question.python, question.positions[0].torch),
        *(question.case, question.sought, question.metric, str(request.machine), str(INSTRUMENT)),
        *(request.effort.device, str(request.effort.threads), question.tree),
    ]
    digest = hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
    return root / ".asv" / "bisect" / f"{digest}.jsonl"


class SearchJournal:
    """The answers of a search, in a file.

    Args:
        path: The file (``log_of_search``).
        question: The change to search for.

    Raises:
        SpecError: If an answer names a place that is not searched.
    """

    def __init__(self, path: Path, question: Question) -> None:
        self._path = path
        _drop_torn_line(path)
        self.answers = list(load_lines(path, _answer, "answer", "ivhl bisect"))
        places = (name for a in self.answers for name in (a.place, a.against, a.alike) if name)
        known = {position.name for position in question.positions}
        if strange := next((name for name in places if name not in known), None):
            raise SpecError(
                f"{path}: an answer names {strange!r:.60}, which is not between the ends",
                hint="--force forgets the answers of this search",
            )

    def add(self, answer: Answer) -> None:
        """Keep an answer."""
        self.answers.append(answer)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self._path, json.dumps(asdict(answer)))


def _drop_torn_line(log: Path) -> None:
    """Remove what a search that was killed has left of its last answer."""
    if log.is_file():
        whole = log.read_bytes()
        if not whole.endswith(b"\n"):
            log.write_bytes(whole[: whole.rfind(b"\n") + 1])


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
