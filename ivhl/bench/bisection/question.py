"""The question of a bisection and its answers, which a journal keeps."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pydantic import TypeAdapter

from ivhl.bench.experiment.evidence import DRIFT, PAIR, PROCESSES_PER_RUN, ROUND
from ivhl.bench.experiment.journal import ExperimentJournal, journal_of
from ivhl.errors import SpecError
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.spec import CellSpec
from ivhl.tracker.causes.blame import breaks_in
from ivhl.tracker.store.metrics import Metric  # noqa: TC001  (pydantic reads it)
from ivhl.tracker.store.spread import ANY_KIND, shipped
from ivhl.tracker.wording import SHOWN_REASON, counted, eager_frames, short_message

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.bench.request import Request
    from ivhl.records.record import RunRecord


Sought = Literal["slowdown", "failure", "wrong", "graph-break", "compile-time"]


Symptom = str | int | None


# What an answer differs by, before anything is measured: of two runs, and of processes in turns.
ASSUMED_NOISE: Final = 0.02


ASSUMED_IN_TURNS: Final = math.hypot(PAIR / math.sqrt(PROCESSES_PER_RUN), ROUND)


class Position(NamedTuple):
    """A commit or a release in the line that is searched.

    Attributes:
        name: Full hash or release.
        title: What is shown.
        commit: Commit to measure at.
        torch: Release to measure with.
    """

    name: str
    title: str
    commit: str
    torch: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is searched for, and where.

    Attributes:
        positions: Oldest first; the ends are known to differ, or the search says that they do not.
        along: What the positions are.
        case: Name of the case.
        metric: What moved, for a slowdown or compile time.
        effect: Smallest factor between the ends that is searched for.
        error: Probability of naming a wrong one.
        tree: Digest of what the working tree adds to each commit: benchmarks and locks. Answers of
            another one are forgotten.
    """

    positions: tuple[Position, ...]
    along: Literal["commit", "torch"]
    python: str
    case: str
    sought: Sought
    metric: Metric
    effect: float
    error: float
    tree: str = ""

    @property
    def timed(self) -> bool:
        """Whether answers have noise that must be weighed."""
        return self.sought in ("slowdown", "compile-time")

    @property
    def in_turns(self) -> bool:
        """Whether an answer is one run of two commits whose processes take turns."""
        return self.sought == "slowdown" and self.along == "commit"

    @property
    def assumed_noise(self) -> float:
        """What the logarithms of answers differ by, before anything is measured."""
        if self.metric not in DRIFT:
            return shipped(ANY_KIND, self.metric, calibrated=True).tau
        return ASSUMED_IN_TURNS if self.in_turns else ASSUMED_NOISE

    @property
    def word(self) -> str:
        """What one position is called."""
        return "commit" if self.along == "commit" else "release"

    def cell(self, position: Position) -> CellSpec:
        """Return the cell in which a position is measured."""
        return CellSpec(self.python, position.torch)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One thing that was learnt, as a line of JSON.

    Attributes:
        place: Name of the position.
        against: Name of the position that it was measured in turns with.
        apart: Logarithm of the place over that one.
        noise: Standard deviation that was expected of it.
        beside: The same two numbers of the other quantities that a run has.
        symptom: What it showed, for what has no noise.
        alike: Name of a position with the same code, if that answers for it.
        skip: Why it cannot be asked.
        text: What was seen.
    """

    place: str
    at: str
    against: str = ""
    apart: float | None = None
    noise: float = 0.0
    beside: dict[Metric, tuple[float, float]] = field(default_factory=dict)
    symptom: Symptom = None
    alike: str = ""
    skip: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Culprit:
    """Where the behaviour changed.

    Attributes:
        before: The last position that is like the first one.
        after: The first one that is like the last one.
        between: Positions between them that could not be asked, with the reason.
        probability: That the change is between these two.
        whole: How the ends differ.
        evidence: How these two differ.
        notes: What else is to know, as sentences.
        answers: Answers between the ends.
        runs: Runs of this session.
        earlier: Answers that an earlier session has left.
    """

    before: Position
    after: Position
    between: tuple[tuple[Position, str], ...]
    probability: float
    whole: str
    evidence: str
    notes: tuple[str, ...]
    answers: int
    runs: int
    seconds: float
    earlier: int = 0


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


class SearchJournal(ExperimentJournal[Answer]):
    """The answers of a search, in a file.

    Args:
        question: The change to search for.
        request: The machine.

    Raises:
        SpecError: If an answer names a place that is not searched, or see ``ExperimentJournal``.
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


_READER: Final = TypeAdapter(Answer)


class NotMeasured(Exception):  # noqa: N818  (an outcome)
    """A position that cannot be measured, and why."""


def symptom_of(record: RunRecord, sought: Sought) -> Symptom:
    """Return what a record shows of what is searched for.

    A number is that of graph breaks and of frames that run eagerly.
    """
    failed = "" if record.failure is None else record.failure.failure_class
    facts = record.compile
    if sought == "graph-break" and facts is not None and facts.frames_total is not None:
        return breaks_in(record)
    if sought == "wrong":
        return failed or "right"
    return failed or "works"


def seen_in(record: RunRecord, sought: Sought) -> str:
    """Return what a record shows, for people."""
    parts = []
    if record.failure is not None:
        message = short_message(record.failure.message, SHOWN_REASON)
        parts.append(f"{record.failure.failure_class}: {message}".removesuffix(": "))
    elif sought != "graph-break" and record.speedup is not None:
        parts.append(f"works, {record.speedup.value:.2f}x")
    facts = record.compile
    if sought == "graph-break" and facts is not None and facts.frames_total is not None:
        breaks, eager = sum(one.count for one in facts.graph_breaks), eager_frames(facts)
        text = f"{counted(breaks, 'graph break')}, {counted(eager, 'frame')} run eagerly"
        if breaks:
            text += f" ({short_message(facts.graph_breaks[0].text, SHOWN_REASON)})"
        parts.insert(0, text)
    return "; ".join(parts)
