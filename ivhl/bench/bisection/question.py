"""The question of a bisection and its answers, which a journal keeps.

The positions are releases or commits between two ends, measured on one Python.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pydantic import TypeAdapter

from ivhl.bench.experiment.evidence import DRIFT, PAIR, PROCESSES_PER_RUN, ROUND
from ivhl.bench.experiment.journal import ExperimentJournal, journal_of
from ivhl.errors import InterpreterError, SpecError, UnknownNameError
from ivhl.git import commit_titles, commits_of_range, find_commit, leads_to
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec, Matrix, Tier, newest_of
from ivhl.tracker.causes.blame import breaks_in
from ivhl.tracker.store.metrics import Metric  # noqa: TC001  (pydantic reads it)
from ivhl.tracker.store.spread import ANY_KIND, shipped
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.wording import SHOWN_REASON, counted, eager_frames, short_message

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
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


_SERIES = re.compile(r"(\d+)\.(\d{1,4})\.")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?\w*")


def newest_python(
    root: Path, matrix: Matrix, releases: tuple[str, str], refused: Container[str]
) -> str:
    """Return the newest Python that is here and has both releases; the newest at all if none is.

    Args:
        root: Root of the project.
        matrix: Its matrix.
        releases: The ends.
        refused: Pythons on which one of them refuses to compile.
    """
    for python in sorted(matrix.pythons, key=python_key, reverse=True):
        if python in refused:
            continue
        cells = [CellSpec(python, release) for release in releases]
        if not python.endswith("t") and all(
            lock_state(root, cell).kind == "locked" for cell in cells
        ):
            with suppress(InterpreterError):
                find_interpreter(root, python, install=False)
                return python
    return matrix.newest_python


def positions_between(
    root: Path,
    matrix: Matrix,
    ends: tuple[str, str],
    tier: Tier,
    *,
    torch: str | None,
    commit: str | None,
) -> tuple[Literal["commit", "torch"], tuple[Position, ...]]:
    """Return what lies between two releases, or two commits, both included.

    Args:
        root: Root of the project.
        matrix: Its matrix.
        ends: As they were given, the older one first.
        tier: Releases between two ends.
        torch: PyTorch release in which commits are measured; ``None`` for the newest default one.
        commit: Commit at which releases are measured; ``None`` for HEAD.

    Raises:
        SpecError: If the ends are neither, the same, or in the wrong order; or if what is searched
            is also given as one.
    """
    along: Literal["commit", "torch"] = "torch" if _are_releases(root, matrix, ends) else "commit"
    known = matrix.releases("extended")
    word, words = ("release", "releases") if along == "torch" else ("commit", "commits")
    if along == "commit":
        for name, beside in (ends, ends[::-1]):
            if newest_of(name, known) in known:
                raise SpecError(
                    f"{name} is a PyTorch release and {beside} is none",
                    hint="name two commits, or two releases",
                )
    if given := torch if along == "torch" else commit:
        raise SpecError(
            f"--{along} {given}: not between two {words}, each of which is measured",
            hint=f"leave --{along} out, or name two {'commits' if along == 'torch' else 'releases'}",
        )
    if along == "torch":
        first, last = (_release(matrix, name) for name in ends)
    else:
        first, last = (find_commit(root, name) for name in ends)
    if first == last:
        raise SpecError(
            f"{ends[0]} and {ends[1]} are the same {word}",
            hint=f"name two of {', '.join(known)}" if along == "torch" else "e.g. v1.0 main",
        )
    if along == "torch":
        return along, _releases_between(
            matrix, first, last, tier, find_commit(root, commit or "HEAD")
        )
    release = _release(matrix, torch or matrix.releases()[-1])
    return along, _commits_between(root, first, last, ends, release)


def _release(matrix: Matrix, text: str) -> str:
    found = matrix.release(text)
    if found not in matrix.every_release:
        raise UnknownNameError("PyTorch release", text, matrix.every_release)
    return found


def _releases_between(
    matrix: Matrix, first: str, last: str, tier: Tier, commit: str
) -> tuple[Position, ...]:
    if release_key(first) > release_key(last):
        raise SpecError(
            f"BEFORE must be older than AFTER (got {first} and {last})",
            hint=f"ivhl bisect {last} {first}; releases: {', '.join(matrix.releases('extended'))}",
        )
    releases = sorted({first, last, *matrix.releases(tier)}, key=release_key)
    between = releases[releases.index(first) : releases.index(last) + 1]
    return tuple(Position(one, f"PyTorch {one}", commit, one) for one in between)


def _commits_between(
    root: Path, first: str, last: str, ends: tuple[str, str], release: str
) -> tuple[Position, ...]:
    if not leads_to(root, first, last):
        raise SpecError(
            f"no commit leads from {ends[0]} to {ends[1]}",
            hint="BEFORE must be an ancestor of AFTER: is the order right? Of two branches, search "
            f"from where they part: git merge-base {ends[0]} {ends[1]}",
        )
    line = (first, *reversed(commits_of_range(root, f"{first}..{last}")))
    titles = commit_titles(root, line)
    return tuple(Position(one, titles[one], one, release) for one in line)


def lacking_releases(releases: Sequence[str]) -> tuple[str, ...]:
    """Return the series between the first and last release of which none is given.

    Args:
        releases: Releases of one major version, oldest first, such as ``2.6.0``; nightlies have no
            series.
    """
    found = [match.groups() for one in releases if (match := _SERIES.match(one))]
    if len({major for major, _ in found}) != 1:
        return ()
    (major, _), minors = found[0], {int(minor) for _, minor in found}
    return tuple(f"{major}.{n}" for n in range(min(minors), max(minors)) if n not in minors)


def _are_releases(root: Path, matrix: Matrix, names: tuple[str, str]) -> bool:
    """Return whether both names are releases: of the matrix, or versions that git does not know."""
    known = matrix.releases("extended")
    if all(newest_of(name, known) in known for name in names):
        return True
    with suppress(SpecError):
        return not all(find_commit(root, name) for name in names)
    return all(_VERSION.fullmatch(name) for name in names)
