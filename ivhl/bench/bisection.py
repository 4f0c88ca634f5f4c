"""Find the commit or release that changed a case, by measuring (``ivhl bisect``).

Times of commits are those of processes that take turns with the first commit's; of releases, of runs
that do, so that both see the same hour. What has no noise
(failures, wrong results, graph breaks) is asked once for each place, and twice where the search
ends. Each answer is kept as soon as it is there: a search that was killed goes on.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from pydantic import TypeAdapter

from ivhl.bench import bench
from ivhl.bench.confirm import PAIR, PROCESSES_PER_RUN, ROUND, ROUNDS, WEIGHED
from ivhl.bench.foretold import UNKNOWN, Took, case_took, foretell
from ivhl.bench.rounds import (
    DRIFT,
    PROCESSES_PER_ROUND,
    difference_in_session,
    difference_in_turns,
    expected_noise,
    noise_of,
    weigh_moves,
)
from ivhl.bench.selection import Selection
from ivhl.errors import IvhlError, LockError, SpecError
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec
from ivhl.records.age import recorded_rank
from ivhl.records.answers import is_final
from ivhl.records.files import append_line
from ivhl.records.store import case_name
from ivhl.tracker.comparable import differences
from ivhl.tracker.culprit import (
    Gap,
    Rates,
    Shift,
    blend,
    chance_of,
    expected_answers,
    find_gaps,
    most_probable,
    next_place,
)
from ivhl.tracker.entries import subject_of
from ivhl.tracker.index import open_index
from ivhl.tracker.kept import load_lines
from ivhl.tracker.metrics import RELEVANT, Metric, difference, is_calibrated
from ivhl.tracker.spread import ANY_KIND, kind_of, shipped
from ivhl.tracker.wording import SHOWN_REASON, counted, seconds, short_message, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from ivhl.bench.confirm import Evidence
    from ivhl.bench.foretold import Foretold
    from ivhl.bench.request import Request
    from ivhl.measure.effort import Effort
    from ivhl.records.record import RunRecord
    from ivhl.tracker.comparable import Axis
    from ivhl.tracker.entries import Entry

Sought = Literal["slowdown", "failure", "wrong", "graph-break", "compile-time"]
SOUGHT: Final[tuple[Sought, ...]] = get_args(Sought)
Symptom = str | int | None
# Runs of each end that show how often a flaky case fails there, and how probable it may be that
# chance alone makes the ends so different.
FLAKY_RUNS, FLAKY_CHANCE = 8, 0.05
# What an answer differs by, before anything is measured: of two runs, and of processes in turns.
ASSUMED_NOISE: Final = 0.02
ASSUMED_IN_TURNS: Final = math.hypot(PAIR / math.sqrt(PROCESSES_PER_RUN), ROUND)
# A change that few runs tell: what a search costs if the ends differ by more than asked.
_CLEAR: Final = 2.0
# No answer about times decides alone: earlier records only say where to look first.
_STORED_LIMIT: Final = 4.0
# A change that leaves this much of the whole to others is not all of it.
_PART: Final = 0.75
# Rounds at one place, as a multiple of those that two clear levels need.
_PATIENCE: Final = 4

# Failures before the case could run: only a search for failures has an answer in them.
_NEVER_RAN: Final = frozenset({"environment", "build", "unavailable"})


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


_READER: Final = TypeAdapter(Answer)


class _NotMeasured(Exception):  # noqa: N818  (an outcome)
    """A position that cannot be measured, and why."""


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


def bisect(
    question: Question,
    request: Request,
    *,
    results: Path,
    console: Console,
    measure: Callable[[Request, Console], object] = bench,
) -> Culprit:
    """Search, measure and return where the behaviour changed.

    Args:
        question: What is searched for.
        request: Machine and effort; commit, cell and case are filled in.
        results: Folder of the results.
        console: Where progress is printed.
        measure: Measures one request.

    Raises:
        SpecError: If the ends do not differ in what is searched for.
        IvhlError: As ``bench``; the answers kept before stay.
        KeyboardInterrupt: Likewise; it says that the same command goes on.
    """
    search = _Bisection(question, request, results, console, measure)
    try:
        return search.run()
    except KeyboardInterrupt:
        console.print(
            f"stopped after {search.seen}: the same command, without --force, goes on from there"
        )
        raise


class Expected(NamedTuple):
    """What a search is expected to cost if none of it was done.

    Attributes:
        places: Commits or releases that are searched.
        runs: Runs, of which seldom more than ``most_runs`` are needed.
        clear_runs: Runs if both ends differ by 2x; ``None`` where no size is searched for.
        run_s: Seconds of a run, by records of this machine or else of others, beside as much other
            work as they had; ``None`` without any.
        run_alone_s: The same on a machine that does nothing else.
        answers: What an earlier search has left: it is not asked again.
    """

    places: int
    runs: int
    most_runs: int
    clear_runs: int | None
    run_s: float | None
    run_alone_s: float | None
    answers: int


def announce(question: Question, request: Request, results: Path, console: Console) -> Expected:
    """Print what the search is expected to cost, before anything is measured, and return it.

    Args:
        question: What is searched for.
        request: The machine.
        results: Folder of the results.
        console: Where it is printed.
    """
    n = len(question.positions) - 1
    runs, most_runs = _expected_runs(question)
    text = f"{counted(n, question.word)}, Python {question.python}; expected: {runs:.0f} runs"
    if most_runs > round(runs):
        text += f", seldom more than {most_runs}"
    each: Took | None = None
    found = _foretell(question, request, results)
    if found is not None:
        each = found.cases.runs(1)
        text += f", of {each} each {found.by}: {found.cases.runs(runs)}"
        if most_runs > round(runs):
            text += f", seldom more than {found.cases.runs(most_runs)}"
    clear_runs: int | None = None
    if question.timed:
        text += f", if both ends differ by just {question.effect:g}x"
        clear_runs = round(_expected_runs(replace(question, effect=_CLEAR))[0])
        if question.effect < _CLEAR and clear_runs < round(runs):
            text += f"; {clear_runs} runs if by {_CLEAR:g}x"
    console.print(text)
    if found is None:
        console.print(UNKNOWN)
    if question.along == "torch":
        console.print(
            "beside that, each environment that is not there yet is made: up to "
            f"{counted(n + 1, 'environment')} of 4.5 to 7 GB, less what uv shares"
        )
    log = log_of_search(request.root, question, request)
    answers = log.read_bytes().count(b"\n") if log.is_file() else 0
    if answers:
        console.print(f"of that, an earlier search has left {counted(answers, 'answer')}")
    return Expected(
        places=n,
        runs=round(runs),
        most_runs=most_runs,
        clear_runs=clear_runs,
        run_s=each and each.beside_s,
        run_alone_s=each and each.alone_s,
        answers=answers,
    )


def _expected_runs(question: Question) -> tuple[float, int]:
    """Return how many runs a search needs, if both ends differ by just its effect, and the most."""
    n = len(question.positions) - 1
    strength = math.log(question.effect) / question.assumed_noise if question.timed else math.inf
    mean, most = expected_answers(n, question.error, strength) if n > 1 else (0.0, 0)
    if not question.timed:
        # Each end twice, and each side of what is found once more, which are the ends if nothing
        # lies between.
        sides = 2 if n > 1 else 0
        return 4 + mean + sides, 4 + most + sides
    # The ends, and the two sides of what is found, which are the ends if nothing lies between.
    needed = _rounds_that_tell(question)
    sides, most_sides = (needed, ROUNDS) if n > 1 else (0, 0)
    # In turns, the first place is run by itself, since its code may be known.
    runs, most_runs = needed + mean + sides, ROUNDS + most + most_sides
    if question.in_turns:
        return runs + min(mean, 1), most_runs + most
    return 2 * runs, 2 * most_runs


def _foretell(question: Question, request: Request, results: Path) -> Foretold | None:
    return foretell(
        results,
        request.machine,
        request.effort.device,
        [question.case],
        lambda record: _case_took(record, question, request),
    )


def _rounds_that_tell(question: Question) -> int:
    """Return how many rounds tell a change of the size that is searched for."""
    for n in range(1, ROUNDS):
        moves, noises = [math.log(question.effect)] * n, [question.assumed_noise] * n
        if weigh_moves(question.metric, moves, noises).low > 1:
            return n
    return ROUNDS


def _case_took(record: RunRecord, question: Question, request: Request) -> Took:
    """Return what the case takes in a run of a search, by an earlier run of it."""
    if question.in_turns:  # two commits in a run
        one = case_took(record, PROCESSES_PER_RUN)
        return Took(2 * one.alone_s, 2 * one.beside_s)
    return case_took(record, PROCESSES_PER_ROUND if question.timed else request.effort.processes)


class _Bisection:
    def __init__(
        self,
        question: Question,
        request: Request,
        results: Path,
        console: Console,
        measure: Callable[[Request, Console], object],
    ) -> None:
        self._question, self._request, self._results = question, request, results
        self._console, self._measure = console, measure
        self._log = log_of_search(request.root, question, request)
        self._names = {p.name: i for i, p in enumerate(question.positions)}
        _drop_torn_line(self._log)
        self._answers = list(load_lines(self._log, _answer, "answer", "ivhl bisect"))
        places = (name for a in self._answers for name in (a.place, a.against, a.alike) if name)
        if strange := next((name for name in places if name not in self._names), None):
            raise SpecError(
                f"{self._log}: an answer names {strange!r:.60}, which is not between the ends",
                hint="--force forgets the answers of this search",
            )
        self._subjects: dict[tuple[str, str | None], int] = {}
        self._last = len(question.positions) - 1
        self._runs = 0
        self._ran_s: list[float] = []
        self._first_record: RunRecord | None = None
        self._told, self._told_s = False, False
        found = _foretell(question, request, results)
        self._is_foretold = found is not None and not found.machines

    def run(self) -> Culprit:
        """Search until one gap is probable enough, and both its sides were measured."""
        began, earlier = time.monotonic(), len(self._answers)
        if self._answers:
            self._console.print(f"goes on after {counted(len(self._answers), 'answer')}")
        whole = self._ask_ends()
        prior = self._prior()
        while True:
            gaps = self._gaps(prior)
            found, place = most_probable(gaps), next_place(gaps)
            sure = found.probability >= 1 - self._question.error or place is None
            todo = next(self._unseen(found), None) if sure else None
            if sure and todo is None:
                break
            self._tell_cost(gaps)
            self._ask(self._chosen(todo if todo is not None else place or 0))
            if not self._question.timed and self._flaky():
                self._ask_rates()
        evidence, notes = self._evidence(found)
        positions = self._question.positions
        skips = self._skips()
        return Culprit(
            before=positions[found.before],
            after=positions[found.after],
            between=tuple((positions[i], skips[i]) for i in range(found.before + 1, found.after)),
            probability=found.probability,
            whole=whole,
            evidence=evidence,
            notes=tuple(notes),
            answers=sum(0 < self._names[a.place] < self._last for a in self._answers),
            runs=self._runs,
            seconds=time.monotonic() - began,
            earlier=earlier,
        )

    @property
    def seen(self) -> str:
        """How many answers there are, for people."""
        return counted(len(self._answers), "answer")

    # What is known.

    def _moves(self, place: int, against: int = 0) -> list[Answer]:
        names = self._question.positions[place].name, self._question.positions[against].name
        return [a for a in self._answers if (a.place, a.against) == names and a.apart is not None]

    def _shown(self, place: int) -> list[bool]:
        """Return whether each run of a place is like the last place."""
        name = self._question.positions[place].name
        symptoms = [a.symptom for a in self._answers if a.place == name and a.symptom is not None]
        found = [self._like_last(symptom) for symptom in symptoms]
        return [one for one in found if one is not None]

    def _runs_first(self, place: int) -> bool:
        """Return whether a place is run by itself before it is compared: its code may be known.

        That run is less than the comparison, and lost where the code is new: it is made as long as
        at least half of the places seen so far had the code of another one.
        """
        name = self._question.positions[place].name
        if self._question.along != "commit" or any(a.place == name for a in self._answers):
            return False
        ends = {self._question.positions[end].name for end in (0, self._last)}
        alike = {a.place for a in self._answers if a.alike}
        seen = alike | {a.place for a in self._answers if a.apart is not None and not a.alike}
        return 2 * len(alike) >= len(seen - ends)

    def _symptoms(self, place: int) -> list[Symptom]:
        name = self._question.positions[place].name
        return [a.symptom for a in self._answers if a.place == name and a.symptom is not None]

    def _apart(self) -> tuple[Symptom, Symptom]:
        """Return the symptoms that tell the first place from the last one; the same if none does.

        A flaky end shows at times what the other one always shows: what is seen most at one end and
        least at the other tells them apart.
        """
        first, last = Counter(self._symptoms(0)), Counter(self._symptoms(self._last))
        pairs = [(one, other) for one in first for other in last if one != other]
        if not pairs:
            return next(iter(first)), next(iter(last))
        return max(
            pairs, key=lambda pair: first[pair[0]] - last[pair[0]] + last[pair[1]] - first[pair[1]]
        )

    def _mended(self) -> bool:
        """Return whether the last place is the better one."""
        first, last = self._apart()
        if isinstance(first, int) and isinstance(last, int):
            return last < first
        return isinstance(last, int) or last in ("works", "right")

    def _like_last(self, symptom: Symptom) -> bool | None:
        """Return whether a symptom is that of the last place; ``None`` if it is neither's."""
        first, last = self._apart()
        numbers = (symptom, first, last)
        if all(isinstance(one, int) for one in numbers):
            value, was, now = (int(one or 0) for one in numbers)
            return (value > was) == (now > was) and value != was
        return True if symptom == last else (False if symptom == first else None)

    def _skips(self) -> dict[int, str]:
        """Return the places that cannot be asked, each with its reason."""
        found = {self._names[a.place]: a.skip for a in self._answers if a.skip}
        first = self._question.positions[0].name
        asked = Counter(
            self._names[a.place]
            for a in self._answers
            if a.symptom is not None or (a.apart is not None and a.against == first)
        )
        most = self._most_answers()
        for place, number in asked.items():
            if number >= most and 0 < place < self._last:
                unclear = f"neither like the first nor like the last in {number} answers"
                found.setdefault(place, unclear)
        return found

    def _alike(self) -> list[tuple[int, int]]:
        return [(self._names[a.place], self._names[a.alike]) for a in self._answers if a.alike]

    def _chosen(self, place: int) -> int:
        """Return the place with own answers that stands for one with the same code."""
        return next((other for one, other in self._alike() if one == place and other), place)

    def _gaps(self, prior: Sequence[float]) -> tuple[Gap, ...]:
        return find_gaps(prior, self._weights(), self._skips().keys(), self._alike())

    def _weights(self) -> dict[int, float]:
        inner = {self._names[a.place] for a in self._answers} - {0, self._last}
        if not self._question.timed:
            rates = Rates.of(self._shown(0), self._shown(self._last), flaky=self._flaky())
            return {place: sum(map(rates.evidence, self._shown(place))) for place in inner}
        shift = self._shift()
        return {
            place: sum(shift.evidence(a.apart) for a in self._moves(place) if a.apart is not None)
            for place in inner
        }

    def _shift(self) -> Shift:
        ends = [a.apart for a in self._moves(self._last) if a.apart is not None]
        scale, freedom = self._noise()
        # What is known of the ends has noise, too.
        return Shift(fmean(ends), scale * math.sqrt(1 + 1 / len(ends)), freedom)

    def _noise(self) -> tuple[float, int]:
        groups: dict[tuple[str, str], list[float]] = {}
        for a in self._answers:
            if a.apart is not None:
                groups.setdefault((a.place, a.against), []).append(a.apart)
        noises = [a.noise for a in self._answers if a.apart is not None]
        return noise_of(groups.values(), noises)

    def _most_answers(self) -> int:
        if not self._question.timed:
            return 2 * FLAKY_RUNS
        shift, odds = self._shift(), math.log((1 - self._question.error) / self._question.error)
        needed = 2 * odds * (shift.scale / shift.apart) ** 2
        return max(ROUNDS, math.ceil(_PATIENCE * needed))

    def _flaky(self) -> bool:
        places = {self._names[a.place] for a in self._answers}
        return any(len(set(self._shown(place))) > 1 for place in places)

    def _strength(self) -> float:
        if not self._question.timed:
            return math.inf
        shift = self._shift()
        return abs(shift.apart) / shift.scale

    def _unseen(self, gap: Gap) -> Iterator[int]:
        """Yield the sides of a gap of which more must be seen before it is named."""
        for place in (gap.before, gap.after):
            if self._chosen(place) != place or (place, 0) in self._alike():
                continue
            if self._question.timed:
                if place not in (0, self._last) and not self._moves(place):
                    yield place
            elif len(self._shown(place)) < 2:  # noqa: PLR2004  (once more than once)
                yield place

    # Asking.

    def _ask_ends(self) -> str:
        """Measure the ends until they are known to differ; return how.

        Raises:
            SpecError: If they do not.
        """
        if self._question.timed:
            return self._ask_times_of_ends()
        ends = (0, self._last)
        asked = min(len(self._symptoms(place)) for place in ends)
        # Asked again, a search whose ends were alike looks at them more often.
        wanted = 2 if not self._are_alike() else min(asked + 2, FLAKY_RUNS)
        for place in ends:
            for number in range(len(self._symptoms(place)), wanted):
                self._ask_symptom(place, force=number > 0, end=True)
        if self._are_alike():
            if self._apart()[0] in _NEVER_RAN:
                raise SpecError(
                    f"--for {self._question.sought}: the case runs at neither end: "
                    f"{self._text(0)} at {self._title(0)}, and so at {self._title(self._last)}",
                    hint="mend that first, or choose other ends",
                )
            n_runs = min(len(self._symptoms(place)) for place in ends)
            unseen = 1 - 0.05 ** (1 / n_runs)
            hint = "search for what differs: ivhl compare shows it"
            if n_runs < FLAKY_RUNS:
                hint += "; of a flaky case, the same command again runs both ends twice more"
            raise SpecError(
                f"--for {self._question.sought}: {self._text(0)} at {self._title(0)}, and so at "
                f"{self._title(self._last)}, in {counted(n_runs, 'run')} each; what less than "
                f"{unseen:.0%} of the runs show may have been missed",
                hint=hint,
            )
        if self._flaky():
            self._ask_rates()
        return f"{self._text(0, like_last=False)} -> {self._text(self._last, like_last=True)}"

    def _are_alike(self) -> bool:
        """Return whether all runs of both ends showed the same; not if one was never run."""
        seen = [self._symptoms(place) for place in (0, self._last)]
        return all(seen) and len({symptom for one in seen for symptom in one}) == 1

    def _ask_rates(self) -> None:
        """Learn how often both ends show a flaky symptom.

        Raises:
            SpecError: If they show it about as often.
        """
        for place in (0, self._last):
            while len(self._shown(place)) < FLAKY_RUNS:
                self._ask_symptom(place, force=True, end=True)
        if chance_of(self._shown(0), self._shown(self._last)) > FLAKY_CHANCE:
            raise SpecError(
                f"{self._question.case} is flaky: {self._rate(0)} at {self._title(0)} and "
                f"{self._rate(self._last)} at {self._title(self._last)} show it",
                hint="no search can tell these apart; choose ends that differ, or mend the case",
            )

    def _ask_times_of_ends(self) -> str:
        effect = self._question.effect
        while True:
            if self._moves(self._last):
                found = self._weigh(self._last, 0)
                size = max(found.ratio, 1 / found.ratio)
                differs = found.low > 1 or found.high < 1
                if differs and size >= effect:
                    return str(found)
                enough = found.high < effect and found.low > 1 / effect
                if enough or found.rounds >= ROUNDS:
                    raise SpecError(
                        f"--for {self._question.sought}: {self._title(0)} and "
                        f"{self._title(self._last)} differ by less than --effect {effect:g}, or by "
                        f"too little to tell: {found} in {counted(found.rounds, 'round')}",
                        hint="choose ends that differ (ivhl regressions), or a smaller --effect"
                        + (", or another --side" if self._question.sought == "slowdown" else ""),
                    )
            self._ask_time(self._last, 0, end=True)

    def _ask(self, place: int) -> None:
        if self._question.timed:
            self._ask_time(place, 0)
        else:
            self._ask_symptom(place, force=bool(self._symptoms(place)))

    def _ask_symptom(self, place: int, *, force: bool, end: bool = False) -> None:
        try:
            stored = None if force or end else self._stored(place)
            record = stored or self._run(place, force=force)
        except _NotMeasured as reason:
            self._skip(place, str(reason), end=end)
            return
        if place == 0 and self._first_record is None:
            self._first_record = record
        symptom = symptom_of(record, self._question.sought)
        text = seen_in(record, self._question.sought)
        if end and self._question.sought != "failure" and symptom in _NEVER_RAN:
            self._skip(place, text, end=True)
        if not end and self._like_last(symptom) is None:
            self._skip(place, text)
            return
        known = self._subject(place, record) if not force else ""
        kept = f"; record of {stored.recorded_at}" if stored else ""
        self._keep(
            Answer(
                place=self._question.positions[place].name,
                at=_now(),
                symptom=symptom,
                alike=known,
                text=text + kept,
            )
        )

    def _ask_time(self, place: int, against: int, *, end: bool = False) -> None:
        """Measure a place and another one in turns, as a round."""
        try:
            there = self._run_by_itself(place) if not end and self._runs_first(place) else {}
            if there is None:
                return
            runs = (
                self._run_both(place, against)
                if self._question.in_turns
                else self._run_each(place, against, there)
            )
        except _NotMeasured as reason:
            self._skip(place, str(reason), end=end)
            return
        one, other = runs[against], runs[place]
        metric = self._question.metric
        moved = self._moved(one, other, metric)
        if moved is None:
            failed = next((run for run in (other, one) if run.failure), other)
            self._skip(place, seen_in(failed, "failure"), end=end or failed is one)
            return
        positions = self._question.positions
        known = {where: self._subject(where, record) for where, record in runs.items()}
        if known[place] and not end and not self._moves(place):
            self._keep_alike(place, known[place])
        answer = Answer(
            place=positions[place].name,
            against=positions[against].name,
            at=_now(),
            apart=moved[0],
            noise=moved[1],
            beside={
                beside: found
                for beside in WEIGHED
                if beside != metric and (found := self._moved(one, other, beside)) is not None
            },
            text=f"{metric} {times(math.exp(moved[0]))} of {positions[against].name[:8]}",
        )
        self._keep(answer)

    def _moved(
        self, one: RunRecord, other: RunRecord, metric: Metric
    ) -> tuple[float, float] | None:
        """Return the logarithm of the second run over the first, and its noise."""
        if self._question.in_turns:
            return difference_in_turns(one, other, metric)
        apart = difference_in_session(one, other, metric)
        if apart is None:
            return None
        if metric in DRIFT:
            return apart, expected_noise(one, other, metric)
        # Of the seconds of compiling a run has one sample, and no rounds that show its error.
        return apart, shipped(kind_of(other), metric, calibrated=True).tau

    def _skip(self, place: int, reason: str, *, end: bool = False) -> None:
        if end:
            raise SpecError(
                f"{self._title(place)}, an end of the search: {reason}",
                hint="choose ends that can be measured, or search with --for failure",
            )
        self._keep(
            Answer(place=self._question.positions[place].name, at=_now(), skip=reason or "failed")
        )

    def _keep_alike(self, place: int, known: str) -> None:
        name = self._question.positions[place].name
        text = f"the case reaches the same code as at {known[:8]}"
        self._keep(Answer(place=name, at=_now(), alike=known, text=text))

    def _keep(self, answer: Answer) -> None:
        self._answers.append(answer)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        append_line(self._log, json.dumps(asdict(answer)))
        said = f"skipped: {answer.skip}" if answer.skip else answer.text
        self._console.print(f"{self._title(self._names[answer.place])}: {said}")

    # Runs and records.

    def _run(self, place: int, *, force: bool) -> RunRecord:
        position = self._question.positions[place]
        before = self._newest(position)
        effort = replace(
            self._request.effort,
            force=force,
            cold=self._question.sought == "compile-time",
        )
        if self._question.timed and not self._question.in_turns:
            effort = replace(effort, processes=PROCESSES_PER_ROUND)
        self._ask_for(position, effort)
        record = self._newest(position)
        if record is None or (force and _same_run(before, record)):
            raise _NotMeasured("no record of it was written")
        return record

    def _run_by_itself(self, place: int) -> dict[int, RunRecord] | None:
        """Return the run of a place that was not seen yet; ``None`` if its code is that of another.

        Raises:
            _NotMeasured: If it fails, so that nothing can be compared.
        """
        record, is_new = self._run_or_find(place)
        if known := self._subject(place, record):
            self._keep_alike(place, known)
            return None
        if record.failure is not None and self._question.in_turns:
            raise _NotMeasured(seen_in(record, "failure"))
        return {place: record} if is_new else {}

    def _run_each(
        self, place: int, against: int, there: dict[int, RunRecord]
    ) -> dict[int, RunRecord]:
        """Return runs of both places, one after the other; the first alternates."""
        runs = dict(there)
        first_too = len(self._moves(place, against)) % 2
        for which in (place, against) if first_too else (against, place):
            if which not in runs:
                runs[which] = self._run(which, force=True)
        return runs

    def _run_both(self, place: int, against: int) -> dict[int, RunRecord]:
        """Return the records of two commits whose processes took turns in one run."""
        positions = {one: self._question.positions[one] for one in (against, place)}
        before = {one: self._newest(position) for one, position in positions.items()}
        effort = replace(self._request.effort, force=True, processes=PROCESSES_PER_RUN)
        self._ask_for(positions[place], effort, base=positions[against].commit)
        seen = self._newest(positions[place])
        if seen is not None and seen.failure is not None and not _same_run(before[place], seen):
            raise _NotMeasured(seen_in(seen, "failure"))
        runs: dict[int, RunRecord] = {}
        for one, position in positions.items():
            record, earlier = self._newest(position), before[one]
            if record is None or _same_run(earlier, record):
                raise _NotMeasured(f"no record of {position.name[:8]} was written")
            runs[one] = record
        return runs

    def _ask_for(self, position: Position, effort: Effort, *, base: str | None = None) -> None:
        """Measure the case at a position.

        Raises:
            _NotMeasured: If that cannot be done there.
            IvhlError: If it can be done nowhere.
        """
        beside = next((p.title for p in self._question.positions if base == p.commit), "")
        in_turns = f", in turns with {beside}" if base else ""
        self._console.print(f"measures {position.title}{in_turns}")
        began = time.monotonic()
        try:
            self._measure(
                replace(
                    self._request,
                    python=self._question.python,
                    releases=(position.torch,),
                    commit=position.commit,
                    base=base,
                    selection=Selection(cases=(self._question.case,)),
                    effort=effort,
                ),
                self._console,
            )
        except LockError as error:
            raise _NotMeasured(str(error)) from error
        except IvhlError as error:
            if type(error) is not IvhlError:
                raise
            raise _NotMeasured(str(error)) from error
        self._runs += 1
        self._ran_s.append(time.monotonic() - began)
        if not self._is_foretold:
            self._tell_by_first_run(position)

    def _run_or_find(self, place: int) -> tuple[RunRecord, bool]:
        """Return the record of a place, and whether it was measured just now."""
        stored = self._newest(self._question.positions[place])
        record = stored or self._run(place, force=False)
        return record, stored is None and record.same_as is None

    def _newest(self, position: Position) -> RunRecord | None:
        return self._newest_of([position]).get(position.name)

    def _newest_of(self, positions: Iterable[Position]) -> dict[str, RunRecord]:
        """Return the newest record of each position that has one."""
        names = {(p.commit, self._question.cell(p).id): p.name for p in positions}
        index = open_index(self._results)
        found: dict[str, Entry] = {}
        for entry in index.entries:
            key = entry.case
            name = names.get((entry.commit, key.cell))
            made = key.machine, key.device, key.existing, case_name(key)
            here = self._request.machine, self._request.effort.device, False, self._question.case
            if name is None or made != here:
                continue
            # A case whose precision was declared otherwise has records of both.
            if name not in found or _age(found[name]) < _age(entry):
                found[name] = entry
        return dict(zip(found, index.read(found.values()), strict=True))

    def _stored(self, place: int) -> RunRecord | None:
        """Return a record that answers for a place, made as those of the first place are."""
        position = self._question.positions[place]
        record = self._newest(position)
        first = self._first_record or self._newest(self._question.positions[0])
        if record is None or first is None:
            return None
        axis: Axis = self._question.along
        lock = lock_state(self._request.root, self._question.cell(position))
        answers = (
            is_final(record.failure)
            and not record.uncommitted
            and record.cell.lock_sha256 == lock.sha256
            and record.workload_version == first.workload_version
            and not differences(first, record, axis)
        )
        return record if answers else None

    def _subject(self, place: int, record: RunRecord) -> str:
        """Note what code a place has; return the name of another place that has the same."""
        if record.sources is None or self._question.along != "commit":
            return ""
        known = self._subjects.setdefault(subject_of(record), place)
        return "" if known == place else self._question.positions[known].name

    def _prior(self) -> list[float]:
        """Return where to look first, by the records that are there; see ``culprit.blend``."""
        n = self._last
        prior = [1 / n] * n
        if not self._question.timed:
            return prior
        index, metric = open_index(self._results), self._question.metric
        records = self._newest_of(self._question.positions)
        ends = [records.get(self._question.positions[i].name) for i in (0, -1)]
        first, last = ends
        whole = None if first is None or last is None else difference(first, last, metric)
        if first is None or whole is None:
            return prior
        evidence: dict[int, float] = {}
        for place, position in enumerate(self._question.positions[1:-1], 1):
            record = records.get(position.name)
            if record is None or differences(first, record, self._question.along):
                continue
            apart = difference(first, record, metric)
            calibrated = is_calibrated(first, record, metric)
            spread = index.spreads.of(record, metric, calibrated=calibrated)
            scale = spread.scale(first, record, metric=metric)
            if apart is not None and scale > 0 and not self._moves(place):
                seen = (apart - whole / 2) * whole / scale**2
                evidence[place] = max(-_STORED_LIMIT, min(_STORED_LIMIT, seen))
        if evidence:
            point = "points" if len(evidence) == 1 else "point"
            self._console.print(f"looks first where {counted(len(evidence), 'record')} {point}")
        return blend(prior, evidence) if evidence else prior

    # What is said.

    def _evidence(self, gap: Gap) -> tuple[str, list[str]]:
        """Return how both sides of a gap differ, measured in turns, and what to know of it."""
        notes = []
        if not self._question.timed:
            if self._flaky():
                notes.append(
                    f"flaky: {self._rate(0)} show it at {self._title(0)}, {self._rate(self._last)} "
                    f"at {self._title(self._last)}, {self._rate(gap.before)} at "
                    f"{self._title(gap.before)}, {self._rate(gap.after)} at {self._title(gap.after)}"
                )
            if rest := self._part(gap):
                notes.append(rest)
            before = self._text(gap.before, like_last=False)
            return f"{before} -> {self._text(gap.after, like_last=True)}", notes
        while (found := self._turns(gap)) is None:
            self._ask_time(gap.after, gap.before, end=True)
        whole = self._shift().apart
        part = math.log(found.ratio) / whole
        if found.low <= 1 <= found.high:
            notes.append(
                "measured in turns, these two do not clearly differ: noise may have misled the "
                "search; ivhl bisect ... --force --error 0.01 begins again"
            )
        elif part < _PART:
            notes.append(
                f"this is {max(part, 0):.0%} of what the ends differ by: search the rest before "
                "and after it"
            )
        moves = self._moves(gap.after, gap.before)
        beside = [
            weigh_moves(
                metric,
                [a.beside[metric][0] for a in moves],
                [a.beside[metric][1] for a in moves],
            )
            for metric in WEIGHED
            if all(metric in a.beside for a in moves)
        ]
        return "; ".join(map(str, (found, *beside))), notes

    def _part(self, gap: Gap) -> str:
        """Return that a gap has not all graph breaks that the ends differ by; empty if it has."""
        newest = (
            next(reversed(self._symptoms(self._chosen(place))), None)
            for place in (0, gap.before, gap.after, self._last)
        )
        numbers = [one for one in newest if isinstance(one, int)]
        if len(numbers) < 4:  # noqa: PLR2004  (a number at each)
            return ""
        first, before, after, last = numbers
        if abs(after - before) >= abs(last - first):
            return ""
        return (
            f"this is {abs(after - before)} of the {abs(last - first)} that the ends differ by: "
            "search the rest before and after it"
        )

    def _turns(self, gap: Gap) -> Evidence | None:
        """Return how both sides of a gap differ; ``None`` if more rounds could tell."""
        if not self._moves(gap.after, gap.before):
            return None
        found, relevant = self._weigh(gap.after, gap.before), RELEVANT[self._question.metric]
        moved = found.low > 1 or found.high < 1
        stayed = found.high < relevant and found.low > 1 / relevant
        return found if moved or stayed or found.rounds >= ROUNDS else None

    def _weigh(self, place: int, against: int) -> Evidence:
        moves = self._moves(place, against)
        return weigh_moves(
            self._question.metric,
            [a.apart for a in moves if a.apart is not None],
            [a.noise for a in moves],
        )

    def _tell_cost(self, gaps: Sequence[Gap]) -> None:
        """Print once, when the ends are known, what is left to do, and how long it takes.

        Seconds come from the first answer between the ends: the run of the ends may have made the
        environment.
        """
        if len(gaps) < 2:  # noqa: PLR2004  (two gaps have a place between)
            return
        if not self._told:
            self._told = True
            self._ran_s.clear()
            mean, most = expected_answers(len(gaps), self._question.error, self._strength())
            answers = counted(round(mean), "answer")
            self._console.print(f"the ends differ: {answers} expected, nine of ten need {most}")
        elif not self._told_s and self._ran_s:
            self._told_s = True
            left = math.exp(-sum(g.probability * math.log(g.probability or 1.0) for g in gaps))
            mean, _ = expected_answers(max(round(left), 1), self._question.error, self._strength())
            # Two releases are two runs; both sides of the culprit are measured once more.
            each = 2 if self._question.timed and not self._question.in_turns else 1
            seconds_left = (mean + 1) * each * max(self._ran_s)
            answers = counted(round(mean), "answer")
            self._console.print(f"left: {answers} and both sides again, {seconds(seconds_left)}")

    def _tell_by_first_run(self, position: Position) -> None:
        """Print what is left to do, by the first run, where no record of this machine told it.

        Its record does not have what making the environment took.
        """
        record = self._newest(position)
        if record is None or record.duration_s <= 0:
            return
        self._is_foretold = True
        each = _case_took(record, self._question, self._request)
        runs, most = (n - self._runs for n in _expected_runs(self._question))
        text = f"left: {runs:.0f} runs, of {each.runs(1)} each by the first one: {each.runs(runs)}"
        if most > round(runs):
            text += f", seldom more than {each.runs(most)}"
        self._console.print(text)

    def _text(self, place: int, *, like_last: bool | None = None) -> str:
        """Return what the newest run of a place showed, if it can be one that is like an end."""
        name = self._question.positions[self._chosen(place)].name
        seen = [a for a in self._answers if a.place == name and a.symptom is not None]
        if like_last is not None:
            seen = [a for a in seen if self._like_last(a.symptom) is like_last] or seen
        return seen[-1].text if seen else "not measured"

    def _rate(self, place: int) -> str:
        """Return in how many runs a place showed what is searched for."""
        shown, mended = self._shown(place), self._mended()
        return f"{sum(one is not mended for one in shown)} of {counted(len(shown), 'run')}"

    def _title(self, place: int) -> str:
        return self._question.positions[place].title


def symptom_of(record: RunRecord, sought: Sought) -> Symptom:
    """Return what a record shows of what is searched for.

    A number is that of graph breaks and of frames that run eagerly.
    """
    failed = "" if record.failure is None else record.failure.failure_class
    facts = record.compile
    if sought == "graph-break" and facts is not None and facts.frames_total is not None:
        eager = facts.frames_total - (facts.frames_ok or 0)
        return sum(one.count for one in facts.graph_breaks) + eager
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
        total = sum(one.count for one in facts.graph_breaks)
        eager = facts.frames_total - (facts.frames_ok or 0)
        first = short_message(facts.graph_breaks[0].text, SHOWN_REASON) if total else ""
        reason = f" ({first})" if total else ""
        parts.insert(
            0, f"{counted(total, 'graph break')}, {counted(eager, 'frame')} run eagerly{reason}"
        )
    return "; ".join(parts)


def _same_run(earlier: RunRecord | None, found: RunRecord) -> bool:
    return earlier is not None and (earlier.recorded_at, earlier.commit) == (
        found.recorded_at,
        found.commit,
    )


def _age(entry: Entry) -> tuple[object, ...]:
    """Return what is larger for the record that stands for a case now."""
    return entry.case.workload_version, recorded_rank(entry)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


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
