"""Measure suspects again: base and head in turns, until the evidence suffices (``ivhl confirm``).

Only the runs of this session decide, so what made a case a suspect is not counted twice. The
processes of both commits alternate, so both see the same seconds of the same machine, and only
cases in doubt are measured again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import fmean, median, pvariance
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.bench import bench
from ivhl.bench.selection import Selection
from ivhl.tracker.facts import changed_facts
from ivhl.tracker.index import open_index
from ivhl.tracker.metrics import RELEVANT, differences_in_turns, student
from ivhl.tracker.store import case_name
from ivhl.tracker.wording import counted, short_message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from ivhl.bench.request import Done, Request
    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes import Kind
    from ivhl.tracker.metrics import Metric


ROUNDS = 5
# Nominal limits of each look, in standard errors. To call a case worse, or better, that is neither
# costs somebody a search, so five looks together may do it with a probability of 0.05 % each; to
# call one refuted that moved by the smallest relevant change, with 6 %. Beside other work there are
# more: docs/regressions.md has the rates of sessions drawn from measured pairs.
# Source: S. J. Pocock, Biometrika 64 (1977) 191: constant boundaries; computed for these levels by
# `tests/unit/test_bench_confirm.py::test_five_looks_together_keep_the_level`.
CONFIRMS = 3.6
REFUTES = 2.0
# Processes of each commit in a round. A new round costs more than further processes do, and most
# cases are settled by one.
PROCESSES_PER_RUN = 6
# What is expected of unchanged code, as standard deviations of the logarithm: by how much two
# processes in turns differ, and all pairs of a round together, since each round's processes are
# forked from the same ones.
PAIR = 0.015
ROUND = 0.004
# Weight of the first expectation, in pairs, beside what the pairs themselves show.
PRIOR_PAIRS = 4
# One pair in so many is left out at either end: something else ran beside one of its processes.
TRIMMED = 8
# Cases without a record that a warning names.
_NAMED = 5
# The quantities that are weighed, with the sign of "worse" in the logarithm of head over base.
WEIGHED: Final[dict[Metric, int]] = {"compiled": 1, "speedup": -1, "eager": 1}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rounds say about one quantity of a case.

    Attributes:
        ratio: Head over base, the geometric mean of the rounds.
        low: With ``high``, the interval that must not hold 1 if a change is confirmed.
        refuting: The interval that must hold no relevant change if it is refuted.
    """

    metric: Metric
    ratio: float
    low: float
    high: float
    rounds: int
    refuting: tuple[float, float]

    def __str__(self) -> str:
        """Return e.g. ``compiled 1.31x [1.24, 1.38]``, with the interval that decides."""
        low, high = self.refuting if self._refuted else (self.low, self.high)
        return f"{self.metric} {self.ratio:.2f}x [{low:.2f}, {high:.2f}]"

    @property
    def verdict(self) -> Kind:
        """What this quantity says: ``unchanged`` if no relevant change is left in the interval."""
        if self._refuted:
            return "unchanged"
        significant = self.low > 1 or self.high < 1
        if significant and max(self.ratio, 1 / self.ratio) >= RELEVANT[self.metric]:
            return "slower" if (self.ratio > 1) == (WEIGHED[self.metric] > 0) else "faster"
        return "inconclusive"

    @property
    def _refuted(self) -> bool:
        low, high = self.refuting
        return high < RELEVANT[self.metric] and low > 1 / RELEVANT[self.metric]


class Confirmed(NamedTuple):
    """The outcome for one case.

    Attributes:
        cell: Cell id.
        case: Workload, size and variant.
        text: The facts or quantities that decide.
    """

    cell: str
    case: str
    verdict: Kind
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
        what = f"{base[:8]} and {head[:8]} in turns, {counted(len(open_cases), 'case')}"
        console.print(f"round {number} of {rounds}: {what}")
        one = replace(
            request,
            commit=head,
            base=base,
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
            sorted({case for (_, case), one in found.items() if one.verdict == "inconclusive"})
        )
        if not open_cases:
            break
    measured = {case for _, case in found}
    for case in dict.fromkeys(cases):
        if case not in measured:
            cell = f"py{request.python}-torch{','.join(request.releases)}"
            found[cell, case] = Confirmed(
                cell, case, "inconclusive", 0, "no record of both commits"
            )
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
        return Confirmed(cell, case, "degraded", len(pairs), text)
    evidence = {metric: found for metric in WEIGHED if (found := weigh(pairs, metric)) is not None}
    text = "; ".join(map(str, evidence.values()))
    return Confirmed(cell, case, verdict_of(evidence), len(pairs), text)


def verdict_of(evidence: Mapping[Metric, Evidence]) -> Kind:
    """Return what the quantities say together, by the rule of ``CaseChange.kind``.

    Where the seconds of compiled code stayed, only eager code can have moved the speedup.
    """
    found = {metric: one.verdict for metric, one in evidence.items()}
    eager, compiled, speedup = found.get("eager"), found.get("compiled"), found.get("speedup")
    if compiled == "unchanged":
        return "unchanged"
    if compiled == "slower" or (speedup == "slower" and eager != "faster"):
        return "slower"
    if compiled == "faster" or (speedup == "faster" and eager != "slower"):
        return "faster"
    return "inconclusive" if "inconclusive" in (compiled, speedup) else "unchanged"


def weigh(pairs: Sequence[tuple[RunRecord, RunRecord]], metric: Metric) -> Evidence | None:
    """Return the evidence of a quantity; ``None`` if a run lacks it."""
    rounds = [differences_in_turns(one, other, metric) for one, other in pairs]
    return evidence_of(metric, rounds) if rounds and all(rounds) else None


def evidence_of(metric: Metric, rounds: Sequence[Sequence[float]]) -> Evidence:
    """Return the evidence of pairs of processes: head over base, as logarithms, round by round.

    The trimmed mean of all pairs of processes. Its variance is that of the pairs, with
    ``PRIOR_PAIRS`` expected ones beside them, and of the rounds: what is expected of them, or more
    if they differ by more. Student's t is turned into a normal deviate.

    Source:
        Alternating trials: A. Abedi and T. Brecht, ICPE 2017, 287. Error of a trimmed mean: J. W.
        Tukey and D. H. McLaughlin, Sankhya A 25 (1963) 331. Student's t: D. L. Wallace, Ann. Math.
        Stat. 30 (1959) 1124, equation 3.
    """
    middle, variance, freedom = mean_of_pairs([move for one in rounds for move in one])
    variance += ROUND**2 / len(rounds)
    if len(rounds) > 1:
        variance = max(variance, pvariance(map(median, rounds)) / (len(rounds) - 1))
    error = math.sqrt(variance)
    low, high = _interval(middle, student(CONFIRMS, freedom) * error)
    refuting = _interval(middle, student(REFUTES, freedom) * error)
    return Evidence(metric, math.exp(middle), low, high, len(rounds), refuting)


def _interval(middle: float, reach: float) -> tuple[float, float]:
    return math.exp(middle - reach), math.exp(middle + reach)


def mean_of_pairs(moves: Sequence[float]) -> tuple[float, float, int]:
    """Return the trimmed mean of pairs of processes, its variance, and the degrees of freedom.

    See ``evidence_of``, which adds what the pairs of a round have in common.
    """
    ordered = sorted(moves)
    n = len(ordered)
    cut = n // TRIMMED
    kept = ordered[cut : n - cut]
    drawn_in = [min(max(move, kept[0]), kept[-1]) for move in ordered]
    squares = n * pvariance(drawn_in) * (n / len(kept)) ** 2 + PRIOR_PAIRS * PAIR**2
    freedom = PRIOR_PAIRS + len(kept) - 1
    return fmean(kept), squares / (PRIOR_PAIRS + n - 1) / n, freedom


def _of_failures(
    pairs: Sequence[tuple[RunRecord, RunRecord]], failures: Collection[tuple[bool, bool]]
) -> tuple[Kind, int, str]:
    one, other = pairs[-1]
    failed = other.failure or one.failure
    text = "" if failed is None else f"{failed.failure_class}: {short_message(failed.message)}"
    verdicts: dict[tuple[bool, bool], Kind] = {(False, True): "fails", (True, False): "fixed"}
    always = next(iter(failures)) if len(failures) == 1 else (True, True)
    if always == (True, True):
        text = f"fails at both commits, or not always: {text}"
    return verdicts.get(always, "inconclusive"), len(pairs), text


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
