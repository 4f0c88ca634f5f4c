"""Estimates from paired samples, with intervals that assume no distribution."""

from __future__ import annotations

import math
from itertools import accumulate
from statistics import fmean, median
from typing import TYPE_CHECKING

from ivhl.records.record import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.records.record import Arm

CONFIDENCE = 0.95
# Above this ratio of (wall / CPU time) between two arms, CPU time is not used.
DISAGREEMENT = 1.25


def median_ranks(n: int, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Return the 0-based ranks of the order statistics that bound the median.

    The number of samples below the median is binomial with p = 1/2, so the interval between the
    ``k``-th smallest and the ``k``-th largest holds the median with a probability that can be
    counted exactly, whatever the distribution. Below 6 samples even the extremes do not reach 95 %,
    and the extremes are returned.

    Raises:
        ValueError: If ``n`` is not positive.

    Source:
        David and Nagaraja, Order Statistics (3rd ed., 2003), section 7.1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    tail, rank = 0.0, 0
    for k in range(n // 2):
        tail += math.comb(n, k) / 2**n
        if 2 * tail > 1 - confidence:
            break
        rank = k + 1
    rank = max(rank - 1, 0)
    return rank, n - 1 - rank


def paired_ratio(
    numerator: Sequence[float], denominator: Sequence[float], rounds: Sequence[int] = ()
) -> Interval:
    """Return the ratio of two arms with its interval within this run.

    The value is the geometric mean of the processes' medians of per-round ratios. The interval is
    that of the median of all ratios, widened to include the median of each process: another run
    differs at least as much as the processes of one run.

    Args:
        numerator: Seconds, one per round, process after process.
        denominator: Seconds of the same rounds.
        rounds: Rounds of each process; empty means a single process.

    Raises:
        ValueError: If the lengths differ, there are none, or a time is not positive.
    """
    if len(numerator) != len(denominator):
        raise ValueError(f"{len(numerator)} samples cannot be paired with {len(denominator)}")
    if not all(t > 0 and math.isfinite(t) for t in (*numerator, *denominator)):
        raise ValueError("every sample must be a positive number of seconds")
    in_order = [a / b for a, b in zip(numerator, denominator, strict=True)]
    ratios = sorted(in_order)
    first, last = median_ranks(len(ratios))
    medians = [median(part) for part in split(in_order, rounds)]
    low, high = min(ratios[first], *medians), max(ratios[last], *medians)
    return Interval(
        # Rounding may move the mean of equal numbers out of the interval.
        value=min(max(math.exp(fmean(map(math.log, medians))), low), high),
        low=low,
        high=high,
        confidence=CONFIDENCE,
        n=len(ratios),
    )


def split(samples: Sequence[float], rounds: Sequence[int] = ()) -> list[Sequence[float]]:
    """Return the samples of each process.

    Raises:
        ValueError: If ``rounds`` does not add up to the samples.
    """
    counts = list(rounds) or [len(samples)]
    if sum(counts) != len(samples) or not all(n > 0 for n in counts):
        raise ValueError(f"{len(samples)} samples are not {counts} rounds")
    ends = list(accumulate(counts))
    return [samples[end - n : end] for end, n in zip(ends, counts, strict=True)]


def clocks_disagree(eager: Arm, compiled: Arm) -> bool:
    """Return whether CPU time flatters compiled: relative to eager, its elapsed time is longer.

    Compiled then waits, or uses a process whose CPU time is not counted. A busy machine stretches
    the elapsed time of both arms equally, so the whole interval of the ratio of ratios must exceed
    ``DISAGREEMENT``. If eager waits, CPU time is kept: a variant gains nothing from that.
    """
    if not (eager.wall_s and eager.cpu_s and compiled.wall_s and compiled.cpu_s):
        return False
    if not all((*eager.cpu_s, *compiled.cpu_s)):
        return True
    share = paired_ratio(
        [wall / cpu for wall, cpu in zip(compiled.wall_s, compiled.cpu_s, strict=True)],
        [wall / cpu for wall, cpu in zip(eager.wall_s, eager.cpu_s, strict=True)],
    )
    return share.low > DISAGREEMENT
