"""Weigh the rounds of a session: what they show about a quantity, given the expected noise.

Two commits of one cell take turns process by process (``confirm``). Cells cannot: their runs stand
one after the other, and what the machine does meanwhile differs.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Final

from ivhl.bench.confirm import ROUND, Evidence, mean_of_pairs
from ivhl.tracker.metrics import differences_in_turns, measured, student, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.metrics import Metric

# Processes that time a case in each run: so many show what the processes of a run differ by.
PROCESSES_PER_ROUND = 4
# What two runs of a session differ by, as a standard deviation of the logarithm, and how many times
# that which their processes show: three sessions of `studies.confirmation` at loads of 2 to 12, at
# commit a42d025, when it compared runs.
SESSION = 0.005
DRIFT: Final[dict[Metric, float]] = {"compiled": 2.0, "eager": 2.0, "speedup": 1.25}
# Nominal limit of each look, in standard errors: five together are wrong with a probability of 1 %
# on either side. What a search finds is measured again where it matters.
LIMIT = 2.75
# Weight of this expectation, in rounds, beside what the rounds themselves show.
PRIOR_ROUNDS = 3


def difference_in_session(one: RunRecord, other: RunRecord, metric: Metric) -> float | None:
    """Return the logarithm of a run over another one of the session; ``None`` if either lacks it.

    Seconds are not divided by those of the calibration: its noise would be added.
    """
    was, now = measured(one, metric), measured(other, metric)
    return None if was is None or now is None else math.log(now.value / was.value)


def expected_noise(one: RunRecord, other: RunRecord, metric: Metric) -> float:
    """Return what the processes of two runs of a session let expect of their difference."""
    drifted = DRIFT[metric] * math.hypot(within(one, metric), within(other, metric))
    return math.hypot(SESSION, drifted)


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
    scale, freedom = noise_of([moves], noises)
    n, middle = len(moves), fmean(moves)
    reach = student(LIMIT, freedom) * scale / math.sqrt(n)
    low, high = math.exp(middle - reach), math.exp(middle + reach)
    return Evidence(metric, math.exp(middle), low, high, n, (low, high))


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
