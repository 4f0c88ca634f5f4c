"""Fit levels to a noisy series: the best steps for a penalty, with or without a second mode.

A point that is far from its level costs no more than one that is `BOUND` deviations away, so that
a spike is never cheaper to explain by a level of its own.

Source:
    Fearnhead and Rigaill, Changepoint detection in the presence of outliers, arXiv:1609.07363
    (bounded loss). Friedrich, Kempe, Liebscher and Winkler, Complexity penalized M-estimation, J.
    Comput. Graph. Stat. 17 (2008) (exact minimum by dynamic programming).
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

BOUND = 3.0  # deviations: a point further away costs as much as one there
FLOOR = 0.0012  # smallest deviation, relative: below it steps and noise alike are irrelevant
GRID = 0.25  # deviations between neighbouring levels that are tried
REACH = 4  # levels that are tried on each side of a value, in steps of the grid
MOST_LEVELS = 2500  # of values that span more, quantiles are tried
CHUNK = 512  # points whose losses are computed at once: bounds the memory


@dataclass(frozen=True, slots=True)
class Noise:
    """Deviation of each point from its level.

    Attributes:
        sd: Standard deviations, shape ``[n]``, in units of the values.
        correlation: With the point before, in ``[0, 1)``; first-order autoregressive.
    """

    sd: Array
    correlation: float = 0.0

    @property
    def typical(self) -> float:
        """Return the median deviation."""
        return median(self.sd)

    def inflation(self, count: int) -> float:
        """Return the variance of a mean of `count` points, over that of independent ones.

        Source:
            Exact for a first-order autoregressive process: Anderson, The Statistical Analysis of
            Time Series (1971), 8.2.
        """
        rho = self.correlation
        rest = 2 * rho * (1 - rho**count) / (count * (1 - rho) ** 2)
        return max(1.0, (1 + rho) / (1 - rho) - rest)


@dataclass(frozen=True, slots=True)
class Modes:
    """A second mode of the noise, which comes and goes.

    Attributes:
        offset: Of the upper mode from the level.
        enter: Probability of the upper mode after the lower one.
        leave: Probability of the lower mode after the upper one.
    """

    offset: float
    enter: float
    leave: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Levels of a series.

    Attributes:
        places: First point of each new level, ascending.
        level: Of each point, shape ``[n]``; that of the lower mode.
        mode: 1 where a point is in the upper mode, shape ``[n]``.
        cost: Sum of losses, penalties and costs of switching.
    """

    places: list[int]
    level: Array
    mode: Array
    cost: float


def spread(differences: Array) -> float:
    """Return a robust standard deviation of points whose differences are given.

    The median of rounded values is often 0; a mean without the largest tenth then says more.
    """
    if not len(differences):
        return 0.0
    size = np.sort(np.abs(differences))
    trimmed = size[: max(1, int(0.9 * len(size)))]
    mean = float(trimmed.sum()) / len(trimmed)
    return max(1.4826 * _middle(size), mean) / math.sqrt(2)


def median(x: Array) -> float:
    """Return what ``np.median`` does of some numbers, in a tenth of its time for short series."""
    return _middle(np.sort(x))


def _middle(ordered: Array) -> float:
    half = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[half])
    return (float(ordered[half - 1]) + float(ordered[half])) / 2


def location(x: Array, weight: Array, scale: float) -> float:
    """Return a weighted biweight location of some values, shape ``[n]``, of deviation `scale`.

    Source:
        Mosteller and Tukey, Data Analysis and Regression (1977), chapter 10; the tuning constant
        is 4.
    """
    centre = median(x)
    if len(x) < 3:  # noqa: PLR2004 - the median of two is their mean
        return float(x @ weight / weight.sum())
    for _ in range(3):
        u = (x - centre) / (4 * scale)
        w = np.maximum(1 - u * u, 0) ** 2 * weight
        total = float(w.sum())
        if total <= 0:
            break
        centre = float(w @ x) / total
    return centre


def penalty(n: int) -> float:
    """Return what a step costs in a series of `n` points, in squared deviations."""
    return 3.5 + 1.9 * math.log(n)


def fit(
    x: Array, sd: Array, step: float, *, modes: Modes | None = None, bound: float = BOUND**2
) -> Fit:
    """Return the levels with the smallest sum of bounded squared deviations and penalties.

    Args:
        x: Values, shape ``[n]``.
        sd: Deviation of each, shape ``[n]``.
        step: What a step costs, in squared deviations.
        modes: The second mode, if there is one; a step may end in either.
        bound: The largest loss of a point, in squared deviations.
    """
    levels = grid_of(x, median(sd) * GRID)
    count, n = len(levels), len(x)
    states = levels if modes is None else np.concatenate([levels, levels + modes.offset])
    stay, go = _switching(modes, count)
    cost, other = np.zeros(len(states)), np.empty(len(states))
    jumped = np.zeros((n, len(states)), dtype=np.bool_)
    switched = np.zeros((n if modes else 0, len(states)), dtype=np.bool_)
    best = np.zeros(n, dtype=np.int64)
    for start in range(0, n, CHUNK):
        end = min(n, start + CHUNK)
        loss = (x[start:end, None] - states) / sd[start:end, None]
        np.square(loss, out=loss)
        np.minimum(loss, bound, out=loss)
        for t in range(start, end):
            if t:
                best[t] = np.argmin(cost)
                limit = cost[best[t]] + step
                if modes is not None:
                    np.add(cost[count:], go[:count], out=other[:count])
                    np.add(cost[:count], go[count:], out=other[count:])
                    cost += stay
                    np.less(other, cost, out=switched[t])
                    np.minimum(cost, other, out=cost)
                np.greater(cost, limit, out=jumped[t])
                np.minimum(cost, limit, out=cost)
            cost += loss[t - start]
    return _trace_back(cost, best, jumped, switched, levels)


def _trace_back(
    cost: Array,
    best: npt.NDArray[np.int64],
    jumped: npt.NDArray[np.bool_],
    switched: npt.NDArray[np.bool_],
    levels: Array,
) -> Fit:
    """Follow the choices from the last point to the first."""
    n, count = len(best), len(levels)
    state = int(np.argmin(cost))
    total = float(cost[state])
    mode, level, places = np.zeros(n), np.zeros(n), []
    for t in range(n - 1, -1, -1):
        mode[t], level[t] = state >= count, levels[state % count]
        if t and jumped[t, state]:
            places.append(t)
            state = int(best[t])
        elif t and len(switched) and switched[t, state]:
            state = (state + count) % (2 * count)
    return Fit(places[::-1], level, mode, total)


def _switching(modes: Modes | None, count: int) -> tuple[Array, Array]:
    """Return what each state pays for staying in its mode, and for coming from the other one."""
    if modes is None:
        return np.zeros(0), np.zeros(0)
    stay = (1 - modes.enter, 1 - modes.leave)
    go = (modes.leave, modes.enter)
    return np.repeat(-2 * np.log(stay), count), np.repeat(-2 * np.log(go), count)


def grid_of(x: Array, step: float) -> Array:
    """Return the levels to try: a grid near the values."""
    cells = np.round(x / step)
    levels = np.unique((cells[:, None] + np.arange(-REACH, REACH + 1)).ravel()) * step
    if len(levels) > MOST_LEVELS:
        levels = np.unique(np.quantile(x, np.linspace(0, 1, MOST_LEVELS)))
    return levels


def segments(places: list[int], n: int) -> list[tuple[int, int]]:
    """Return start and end of every regime."""
    return list(pairwise([0, *places, n]))
