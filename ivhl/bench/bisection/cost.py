"""Estimate the cost of a search, before it begins and while it runs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.bench.bisection.question import SearchJournal
from ivhl.bench.experiment.estimate import (
    Duration,
    Estimate,
    duration_of_case,
    environments,
    estimate,
    told,
)
from ivhl.bench.experiment.evidence import (
    PROCESSES_PER_ROUND,
    PROCESSES_PER_RUN,
    ROUNDS,
    weigh_moves,
)
from ivhl.tracker.causes.culprit import (
    Gap,
    expected_answers,
)
from ivhl.tracker.wording import counted, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from ivhl.bench.bisection.question import (
        Question,
    )
    from ivhl.bench.bisection.search import Search
    from ivhl.bench.request import Request
    from ivhl.records.record import RunRecord


# A change that few runs tell: what a search costs if the ends differ by more than asked.
_CLEAR: Final = 2.0


class Expected(NamedTuple):
    """The estimated cost of a search of which nothing was done.

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
        question: The change to search for.
        request: The machine.
        results: Folder of the results.
        console: Where it is printed.
    """
    n = len(question.positions) - 1
    runs, most_runs = _expected_runs(question)
    found = estimate_of(question, request, results)
    cost = told("expected", runs, found, most=most_runs)
    console.print(f"{counted(n, question.word)}, Python {question.python}; {cost}")
    clear_runs: int | None = None
    if question.timed:
        text = f"so many if both ends differ by just {question.effect:g}x"
        clear_runs = round(_expected_runs(replace(question, effect=_CLEAR))[0])
        if question.effect < _CLEAR and clear_runs < round(runs):
            text += f"; {clear_runs} runs if by {_CLEAR:g}x"
        console.print(text)
    if question.along == "torch":
        console.print(f"beside that, {environments(n + 1)}")
    answers = len(SearchJournal(question, request).lines)
    if answers:
        console.print(f"of that, an earlier search has left {counted(answers, 'answer')}")
    each = found.cases.runs(1) if found else None
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


def estimate_of(question: Question, request: Request, results: Path) -> Estimate | None:
    """Return what a run of the search takes, by records; ``None`` without any."""
    return estimate(
        results,
        request.machine,
        request.effort.device,
        [question.case],
        lambda record: _duration(record, question, request),
    )


def _rounds_that_tell(question: Question) -> int:
    """Return how many rounds tell a change of the size that is searched for."""
    for n in range(1, ROUNDS):
        moves, noises = [math.log(question.effect)] * n, [question.assumed_noise] * n
        if weigh_moves(question.metric, moves, noises).low > 1:
            return n
    return ROUNDS


def _duration(record: RunRecord, question: Question, request: Request) -> Duration:
    """Return what the case takes in a run of a search, by an earlier run of it."""
    if question.in_turns:  # two commits in a run
        return duration_of_case(record, PROCESSES_PER_RUN).times(2)
    processes = PROCESSES_PER_ROUND if question.timed else request.effort.processes
    return duration_of_case(record, processes)


class SearchCost:
    """Prints what is left to do, once when the ends are known and once after an answer.

    Args:
        question: The change to search for.
        request: The machine.
        search: What the answers tell.
        console: Where it is printed.
        by_records: Whether records of this machine told what a run takes.
    """

    def __init__(
        self,
        question: Question,
        request: Request,
        search: Search,
        console: Console,
        *,
        by_records: bool,
    ) -> None:
        self._question, self._request, self._search = question, request, search
        self._console = console
        # Seconds of each run of this session.
        self.took_s: list[float] = []
        # What was printed, and how many runs there were.
        self._printed: dict[str, int] = {"run": 0} if by_records else {}

    def tell_cost(self, gaps: Sequence[Gap]) -> None:
        """Print once, when the ends are known, what is left to do, and how long it takes.

        Seconds come from the first answer between the ends: the run of the ends may have made the
        environment.
        """
        if len(gaps) < 2:  # noqa: PLR2004  (two gaps have a place between)
            return
        taken = self.took_s[self._printed.get("ends", 0) :]
        if "ends" not in self._printed:
            self._printed["ends"] = len(self.took_s)
            mean, most = expected_answers(len(gaps), self._question.error, self._search.strength())
            answers = counted(round(mean), "answer")
            self._console.print(f"the ends differ: {answers} expected, nine of ten need {most}")
        elif "seconds" not in self._printed and taken:
            self._printed["seconds"] = len(self.took_s)
            left = math.exp(-sum(g.probability * math.log(g.probability or 1.0) for g in gaps))
            mean, _ = expected_answers(
                max(round(left), 1), self._question.error, self._search.strength()
            )
            # Two releases are two runs; both sides of the culprit are measured once more.
            each = 2 if self._question.timed and not self._question.in_turns else 1
            seconds_left = (mean + 1) * each * max(taken)
            answers = counted(round(mean), "answer")
            self._console.print(f"left: {answers} and both sides again, {seconds(seconds_left)}")

    @property
    def is_known(self) -> bool:
        """Whether a record of this machine has told what a run takes."""
        return "run" in self._printed

    def tell_by_first_run(self, record: RunRecord | None) -> None:
        """Print what is left to do, by the first run, where no record of this machine told it.

        Its record does not have what making the environment took.
        """
        if record is None or record.duration_s <= 0:
            return
        n_runs = self._printed["run"] = len(self.took_s)
        each = _duration(record, self._question, self._request)
        runs, most = (n - n_runs for n in _expected_runs(self._question))
        self._console.print(told("left", runs, Estimate(each, first="one"), most=round(most)))
