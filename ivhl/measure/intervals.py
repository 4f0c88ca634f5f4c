"""Estimates from paired samples, with intervals that assume no distribution."""

from __future__ import annotations

import math
from statistics import median

from ivhl.records import Interval

CONFIDENCE = 0.95


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


def paired_ratio(numerator: tuple[float, ...], denominator: tuple[float, ...]) -> Interval:
    """Return the median of the per-round ratios with its interval.

    Args:
        numerator: Seconds, one per round.
        denominator: Seconds of the same rounds.

    Raises:
        ValueError: If the lengths differ, there are none, or a time is not positive.
    """
    if len(numerator) != len(denominator):
        raise ValueError(f"{len(numerator)} samples cannot be paired with {len(denominator)}")
    if not all(t > 0 and math.isfinite(t) for t in (*numerator, *denominator)):
        raise ValueError("every sample must be a positive number of seconds")
    ratios = sorted(a / b for a, b in zip(numerator, denominator, strict=True))
    low, high = median_ranks(len(ratios))
    return Interval(
        value=median(ratios),
        low=ratios[low],
        high=ratios[high],
        confidence=CONFIDENCE,
        n=len(ratios),
    )
