"""Measure suspects again: base and head in turns, until the evidence suffices (``ivhl confirm``).

Only the runs of this session decide, so what made a case a suspect is not counted twice. Both
commits see the same hour and the same neighbours, and only cases in doubt are measured again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ivhl.bench import bench
from ivhl.bench.selection import Selection
from ivhl.records.store import case_name
from ivhl.tracker.facts import changed_facts
from ivhl.tracker.index import open_index
from ivhl.tracker.metrics import RELEVANT, difference_in_session, within
from ivhl.tracker.wording import counted, short_message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from ivhl.bench.request import Done, Request
    from ivhl.records.record import RunRecord
    from ivhl.tracker.metrics import Metric

Decision = Literal["worse", "better", "refuted", "undecided", "failed"]

ROUNDS = 5
# Nominal limit of each look, in standard errors, so that five looks together call a case worse, or
# better, that is neither, with a probability of 1 % each.
# Source: S. J. Pocock, Biometrika 64 (1977) 191: constant boundaries; computed for this level by
# `tests/unit/test_bench_confirm.py::test_five_looks_together_keep_the_level`.
LIMIT = 2.75
# So many show what the processes of a run differ by. More would make a round longer, in which the
# machine drifts by more than the error of their mean.
PROCESSES_PER_RUN = 4
# What two runs of a session differ by, as three sessions of `python -m studies.confirmation` showed
# at loads of 2 to 12. Their rows are of earlier rules and not kept; its `--report` checks these.
# Beyond what the processes of both show, as a standard deviation of the logarithm.
SESSION = 0.005
# How many times that which the processes of a run show: seconds drift from run to run.
DRIFT: Final[dict[Metric, float]] = {"compiled": 2.0, "eager": 2.0, "speedup": 1.25}
# Weight of this expectation, in rounds, beside what the rounds themselves show.
PRIOR_ROUNDS = 3
# Cases without a record that a warning names.
_NAMED = 5
# The quantities that are weighed, with the sign of "worse" in the logarithm of head over base.
WEIGHED: Final[dict[Metric, int]] = {"compiled": 1, "speedup": -1, "eager": 1}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rounds say about one quantity of a case.

    Attributes:
        ratio: Head over base, the geometric mean of the rounds.
        low: With ``high``, its interval at the level of the looks.
    """

    metric: Metric
    ratio: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        """Return e.g. ``compiled 1.31x [1.24, 1.38]``."""
        return f"{self.metric} {self.ratio:.2f}x [{self.low:.2f}, {self.high:.2f}]"

    @property
    def verdict(self) -> Decision:
        """What this quantity says: ``refuted`` if no relevant change is left in the interval."""
        relevant = RELEVANT[self.metric]
        if self.high < relevant and self.low > 1 / relevant:
            return "refuted"
        significant = self.low > 1 or self.high < 1
        if significant and max(self.ratio, 1 / self.ratio) >= relevant:
            return "worse" if (self.ratio > 1) == (WEIGHED[self.metric] > 0) else "better"
        return "undecided"


class Confirmed(NamedTuple):
    """The outcome for one case.

    Attributes:
        cell: Cell id.
        case: Workload, size and variant.
        text: The facts or quantities that decide.
    """

    cell: str
    case: str
    verdict: Decision
    rounds: int
    text: str


def confirm(
    request: Request,
    base: str,
    head: str,
    cases: Iterable[str],
    *,
    results: Path,
    console: Console,
    rounds: int = ROUNDS,
    measure: Callable[[Request, Console], Done | None] = bench,
) -> tuple[Confirmed, ...]:
    """Measure cases at two commits in turns, and judge them.

    Args:
        request: One Python and its releases; commit, cases and ``force`` are filled in.
        base: Full hash.
        head: Full hash.
        cases: Names of cases, as ``Case.name``.
        results: Folder of the results.
        console: Where progress is printed.
        rounds: Most rounds.
        measure: Measures one request; ``None`` if it does not know what is missing.

    Raises:
        IvhlError: As ``bench``; the records written before stay.
    """
    cases = tuple(cases)
    open_cases = tuple(dict.fromkeys(cases))
    known = {_time(record) for record in _runs(results, (base, head))}
    found: dict[tuple[str, str], Confirmed] = {}
    for number in range(1, rounds + 1):
        # The first of a round alternates: what a session warms up or wears out favours neither.
        for commit in (base, head) if number % 2 else (head, base):
            console.print(f"round {number} of {rounds}: {commit[:8]}, {len(open_cases)} case(s)")
            one = replace(
                request,
                commit=commit,
                selection=Selection(cases=open_cases),
                effort=replace(request.effort, force=True, processes=PROCESSES_PER_RUN),
            )
            done = measure(one, console)
            if done is not None and done.missing:
                names = "; ".join(done.missing[:_NAMED])
                what = f"{counted(len(done.missing), 'case')} without a record"
                console.print(f"warning: {what}: {names}; asv's output is in {done.log}")
        new = [r for r in _runs(results, (base, head)) if _time(r) not in known]
        pairs = _pairs(new, base, head)
        found = {key: judge_rounds(key, runs) for key, runs in pairs.items()}
        open_cases = tuple(
            sorted({case for (_, case), one in found.items() if one.verdict == "undecided"})
        )
        if not open_cases:
            break
    measured = {case for _, case in found}
    for case in dict.fromkeys(cases):
        if case not in measured:
            cell = f"py{request.python}-torch{','.join(request.releases)}"
            found[cell, case] = Confirmed(cell, case, "undecided", 0, "no record of both commits")
    return tuple(found[key] for key in sorted(found))


def judge_rounds(key: tuple[str, str], pairs: Sequence[tuple[RunRecord, RunRecord]]) -> Confirmed:
    """Judge one case by its rounds: pairs of a run of the base and one of the head."""
    cell, case = key
    failures = {(bool(one.failure), bool(other.failure)) for one, other in pairs}
    if failures != {(False, False)}:
        return Confirmed(cell, case, *_of_failures(pairs, failures))
    facts = changed_facts(*pairs[-1])
    if all(any(f.worse for f in changed_facts(*pair)) for pair in pairs):
        text = "; ".join(fact.text for fact in facts if fact.worse)
        return Confirmed(cell, case, "worse", len(pairs), text)
    evidence = {metric: found for metric in WEIGHED if (found := weigh(pairs, metric)) is not None}
    text = "; ".join(map(str, evidence.values()))
    return Confirmed(cell, case, _verdict(evidence), len(pairs), text)


def _verdict(evidence: Mapping[Metric, Evidence]) -> Decision:
    """Return what the quantities say together, by the rule of ``CaseChange.kind``.

    Where the seconds of compiled code stayed, only eager code can have moved the speedup.
    """
    found = {metric: one.verdict for metric, one in evidence.items()}
    eager, compiled, speedup = found.get("eager"), found.get("compiled"), found.get("speedup")
    if compiled == "refuted":
        return "refuted"
    # Of the seconds of a side, "better" is faster.
    if compiled == "worse" or (speedup == "worse" and eager != "better"):
        return "worse"
    if compiled == "better" or (speedup == "better" and eager != "worse"):
        return "better"
    return "undecided" if "undecided" in (compiled, speedup) else "refuted"


def weigh(pairs: Sequence[tuple[RunRecord, RunRecord]], metric: Metric) -> Evidence | None:
    """Return the evidence of a quantity; ``None`` if a run lacks it.

    Seconds are not divided by those of the calibration: both commits are measured in one session,
    and the noise of the calibration would be added. The variance of a round is that of the rounds,
    with what runs of a session differ by in general as ``PRIOR_ROUNDS`` further ones. Student's t
    is turned into a normal deviate.

    Source:
        D. L. Wallace, Ann. Math. Stat. 30 (1959) 1124, equation 3.
    """
    apart = [difference_in_session(one, other, metric) for one, other in pairs]
    moves = [move for move in apart if move is not None]
    if len(moves) < len(pairs) or not moves:
        return None
    errors = [DRIFT[metric] * math.hypot(*(within(run, metric) for run in pair)) for pair in pairs]
    prior = SESSION**2 + fmean(error**2 for error in errors)
    n, middle = len(moves), fmean(moves)
    freedom = PRIOR_ROUNDS + n - 1
    squares = sum((move - middle) ** 2 for move in moves)
    error = math.sqrt((PRIOR_ROUNDS * prior + squares) / freedom / n)
    reach = _student(LIMIT, freedom) * error
    return Evidence(
        metric, math.exp(middle), math.exp(middle - reach), math.exp(middle + reach), n
    )


def _student(z: float, freedom: int) -> float:
    """Return the t with the tail probability of a normal deviate, by Wallace's approximation."""
    scaled = z * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(scaled * scaled / freedom))


def _of_failures(
    pairs: Sequence[tuple[RunRecord, RunRecord]], failures: Collection[tuple[bool, bool]]
) -> tuple[Decision, int, str]:
    one, other = pairs[-1]
    failed = other.failure or one.failure
    text = "" if failed is None else f"{failed.failure_class}: {short_message(failed.message)}"
    verdicts: dict[tuple[bool, bool], Decision] = {(False, True): "worse", (True, False): "better"}
    always = next(iter(failures)) if len(failures) == 1 else (True, True)
    return verdicts.get(always, "failed"), len(pairs), text


def _runs(results: Path, commits: Collection[str]) -> list[RunRecord]:
    index = open_index(results)
    return list(index.read(e for e in (*index.entries, *index.replaced) if e.commit in commits))


def _time(record: RunRecord) -> tuple[str, ...]:
    return (record.commit, record.cell.id, case_name(record), record.recorded_at)


def _pairs(
    records: Iterable[RunRecord], base: str, head: str
) -> dict[tuple[str, str], list[tuple[RunRecord, RunRecord]]]:
    """Return the rounds by cell and case: the n-th run of the base with the n-th of the head."""
    runs: dict[tuple[str, str, str], list[RunRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.recorded_at):
        runs[record.commit, record.cell.id, case_name(record)].append(record)
    return {
        (cell, case): list(zip(group, runs[head, cell, case], strict=False))
        for (commit, cell, case), group in list(runs.items())
        if commit == base and (head, cell, case) in runs
    }
