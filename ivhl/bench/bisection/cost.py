"""Estimate the cost of a search, before it begins and while it runs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.bench.bisection.question import Question, SearchJournal
from ivhl.bench.experiment.estimate import Estimate, duration_of_case, environments, estimate, told
from ivhl.bench.experiment.evidence import (
    PROCESSES_PER_ROUND,
    PROCESSES_PER_RUN,
    ROUNDS,
    weigh_moves,
)
from ivhl.tracker.causes.culprit import Gap, expected_answers
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

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
        run_s: Seconds of a run, by records of this machine or else of others; ``None`` without
            any.
        answers: What an earlier search has left: it is not asked again.
    """

    places: int
    runs: int
    most_runs: int
    clear_runs: int | None
    run_s: float | None
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
    found = estimate(
        results,
        request.machine,
        request.effort.device,
        [question.case],
        lambda record: _duration(record, question, request),
    )
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
    return Expected(
        places=n,
        runs=round(runs),
        most_runs=most_runs,
        clear_runs=clear_runs,
        run_s=found.runs_s(1) if found else None,
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


def _rounds_that_tell(question: Question) -> int:
    """Return how many rounds tell a change of the size that is searched for."""
    for n in range(1, ROUNDS):
        moves, noises = [math.log(question.effect)] * n, [question.assumed_noise] * n
        if weigh_moves(question.metric, moves, noises).low > 1:
            return n
    return ROUNDS


def _duration(record: RunRecord, question: Question, request: Request) -> float:
    """Return the seconds of the case in a run of a search, by an earlier run of it."""
    if question.in_turns:  # two commits in a run
        return 2 * duration_of_case(record, PROCESSES_PER_RUN)
    processes = PROCESSES_PER_ROUND if question.timed else request.effort.processes
    return duration_of_case(record, processes)


def cost_left(
    question: Question,
    request: Request,
    search: Search,
    gaps: Sequence[Gap],
    record: RunRecord | None,
) -> str:
    """Return what is left to do when the ends are known, and how long it takes.

    Args:
        question: The change to search for.
        request: The machine.
        search: What the answers tell.
        gaps: Where the change may be.
        record: A run of an end. It does not have what making the environment took.
    """
    mean, most = expected_answers(len(gaps), question.error, search.strength())
    # Two releases are two runs; both sides of the culprit are measured once more.
    each = 2 if question.timed and not question.in_turns else 1
    known = None
    if record is not None and record.duration_s > 0:
        known = Estimate(_duration(record, question, request), first="run")
    return f"the ends differ; {told('left', each * (mean + 1), known, most=each * (most + 1))}"
