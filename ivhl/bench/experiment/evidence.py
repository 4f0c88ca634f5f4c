"""The evidence of an experiment: what its rounds show of a quantity, with the noise to expect.

Processes of two commits of one cell are interleaved (``evidence_of``). Those of two cells cannot
be: their runs follow each other, and the load of the machine differs between them
(``weigh_moves``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, median, pvariance
from typing import TYPE_CHECKING, Final

from ivhl.tracker.store.metrics import RELEVANT, differences_in_turns, measured, student, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.kinds import Kind
    from ivhl.tracker.store.metrics import Metric

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
# Expected standard deviations of the logarithm for unchanged code: between two interleaved
# processes, and of all pairs of a round together, whose processes have the same parents.
PAIR = 0.015
ROUND = 0.004
# Weight of the first expectation, in pairs, beside what the pairs themselves show.
PRIOR_PAIRS = 4
# One pair in so many is left out at either end: something else ran beside one of its processes.
TRIMMED = 8
# The quantities that are weighed, with the sign of "worse" in the logarithm of head over base.
WEIGHED: Final[dict[Metric, int]] = {"compiled": 1, "speedup": -1, "eager": 1}
# Processes that time a case in each run: so many show what the processes of a run differ by.
PROCESSES_PER_ROUND = 4
# What two runs of a session differ by, as a standard deviation of the logarithm, and how many times
# that which their processes show: three sessions of `studies.confirmation` at loads of 2 to 12, at
# commit a42d025, when it compared runs.
SESSION = 0.005
DRIFT: Final[dict[Metric, float]] = {"compiled": 2.0, "eager": 2.0, "speedup": 1.25}
# Nominal limit of each look, in standard errors: five together are wrong with a probability of 1 %
# on either side. A search measures its result again where it matters.
LIMIT = 2.75
# Weight of this expectation, in rounds, beside what the rounds themselves show.
PRIOR_ROUNDS = 3


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


def difference_in_session(one: RunRecord, other: RunRecord, metric: Metric) -> float | None:
    """Return the logarithm of a run over another one of the session; ``None`` if either lacks it.

    Seconds are not divided by those of the calibration: its noise would be added.
    """
    was, now = measured(one, metric), measured(other, metric)
    return None if was is None or now is None else math.log(now.value / was.value)


def expected_noise(
    metric: Metric, runs: Sequence[RunRecord], weights: Sequence[float] = (1.0, -1.0)
) -> float:
    """Return the noise that processes let expect of a weighted sum of runs of a session.

    Args:
        metric: What moved.
        runs: Two runs, whose difference is asked; or those of all arms.
        weights: Factor of the logarithm of each.
    """
    # ``SESSION`` is that of a difference of two runs.
    each = [math.hypot(SESSION / math.sqrt(2), DRIFT[metric] * within(r, metric)) for r in runs]
    return math.hypot(*(weight * noise for weight, noise in zip(weights, each, strict=True)))


def difference_in_turns(
    one: RunRecord, other: RunRecord, metric: Metric
) -> tuple[float, float] | None:
    """Return the logarithm of a run over the one whose processes it took turns with, and its noise.

    The noise is a standard deviation. ``None`` if either run lacks the quantity.
    """
    moves = differences_in_turns(one, other, metric)
    if not moves:
        return None
    middle, variance, _ = mean_of_pairs(moves)
    return middle, math.sqrt(variance + ROUND**2)


def weigh_moves(metric: Metric, moves: Sequence[float], noises: Sequence[float]) -> Evidence:
    """Return the evidence of rounds.

    Args:
        metric: What moved.
        moves: The logarithm of the second run over the first one, for each round.
        noises: Their ``expected_noise``.
    """
    middle, reach = mean_of_rounds(moves, noises, LIMIT)
    low, high = _interval(middle, reach)
    return Evidence(metric, math.exp(middle), low, high, len(moves), (low, high))


def mean_of_rounds(
    moves: Sequence[float], noises: Sequence[float], limit: float
) -> tuple[float, float]:
    """Return the mean of rounds, and half of its interval at a limit in standard errors."""
    scale, freedom = noise_of([moves], noises)
    return fmean(moves), student(limit, freedom) * scale / math.sqrt(len(moves))


def noise_of(groups: Iterable[Sequence[float]], noises: Sequence[float]) -> tuple[float, int]:
    """Return the standard deviation of a round, and the degrees of freedom of this estimate.

    The variance is that of the rounds, with what is expected of them as ``PRIOR_ROUNDS`` further
    ones.

    Args:
        groups: Rounds that differ by noise only, group by group.
        noises: The ``expected_noise`` of all of them.
    """
    squares, freedom = PRIOR_ROUNDS * fmean(noise**2 for noise in noises), PRIOR_ROUNDS
    for moves in filter(None, groups):
        middle = fmean(moves)
        squares += sum((move - middle) ** 2 for move in moves)
        freedom += len(moves) - 1
    return math.sqrt(squares / freedom), freedom


def _interval(middle: float, reach: float) -> tuple[float, float]:
    return math.exp(middle - reach), math.exp(middle + reach)
