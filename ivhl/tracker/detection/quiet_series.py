"""Find, among many series of one length at once, those without a change point.

`changepoints.detect` makes some hundred calls of NumPy, whatever the length: a millisecond for a
short series, and a history has thousands of them. Here each call is made once for all series. The
arithmetic is that of `levels.fit` and `noise`; what is not plain is left to `detect`.
"""

import math

import numpy as np
import numpy.typing as npt

from ivhl.tracker.detection.levels import BOUND, FLOOR, GRID, Array, grid_of, penalty
from ivhl.tracker.detection.noise import (
    FIT_INFLATION,
    LAGS,
    MODE_GAP,
    MODE_QUARTILE,
    MODE_SHARE,
    MOST_CORRELATION,
)

TOGETHER = 256  # series: bounds the memory


def have_no_step(x: Array, se: Array) -> npt.NDArray[np.bool_]:
    """Return which series are certainly explained best by one level, shape ``[series]``.

    A series with a step is never among them; one without a step may be missing.

    Args:
        x: Logarithms, shape ``[series, n]``, with ``n`` beyond the series that are short for
            `changepoints.detect`.
        se: Standard error of each within its run, same shape.
    """
    found = [
        _have_no_step(x[start : start + TOGETHER], se[start : start + TOGETHER])
        for start in range(0, len(x), TOGETHER)
    ]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.bool_)


def _have_no_step(x: Array, se: Array) -> npt.NDArray[np.bool_]:
    step = np.full(len(x), penalty(x.shape[1]))
    white = _with_errors(_spreads(np.diff(x)), se)
    correlated, inflation = _correlated(x, se)
    return (
        _has_one_mode(x)
        & _is_one_level(x, white, step)
        & _is_one_level(x, correlated, step * np.minimum(inflation, FIT_INFLATION))
    )


def _is_one_level(x: Array, sd: Array, step: Array) -> npt.NDArray[np.bool_]:
    """Return where `levels.fit` without modes has no step.

    Its path changes the level only where it jumped, so the last level tells: without a jump in it
    the path has none.
    """
    grids = [grid_of(*one) for one in zip(x, np.median(sd, axis=1) * GRID, strict=True)]
    most = max(map(len, grids))
    levels = np.full((len(x), most), np.inf)
    for row, grid in zip(levels, grids, strict=True):
        row[: len(grid)] = grid
    cost = np.zeros_like(levels)
    jumped = np.zeros(levels.shape, dtype=np.bool_)
    for t in range(x.shape[1]):
        if t:
            limit = (cost.min(axis=1) + step)[:, None]
            jumped |= cost > limit
            np.minimum(cost, limit, out=cost)
        loss = (x[:, t, None] - levels) / sd[:, t, None]
        np.square(loss, out=loss)
        np.minimum(loss, BOUND**2, out=loss)
        cost += loss
    last = cost.argmin(axis=1)[:, None]
    return ~np.take_along_axis(jumped, last, axis=1)[:, 0]


def _correlated(x: Array, se: Array) -> tuple[Array, Array]:
    """Return `noise.noise_within` of each series without steps: deviations and inflation."""
    n = x.shape[1]
    variogram = np.stack(
        [_spreads(x[:, lag:] - x[:, :-lag]) ** 2 for lag in range(1, 2 * LAGS + 1)], axis=1
    )
    variance = variogram[:, 0]
    total = np.maximum(
        variance, np.minimum(np.median(variogram[:, LAGS - 1 :], axis=1), 9 * variance)
    )
    still = variance == 0
    rho = np.clip(1 - variogram[:, :LAGS] / np.where(still, 1, total)[:, None], 0, 0.95)
    weights = 1 - np.arange(1, LAGS + 1) / (LAGS + 1)
    long = 1 + 2 * rho @ weights
    correlation = np.where(still, 0, np.minimum((long - 1) / (long + 1), MOST_CORRELATION))
    rest = 2 * correlation * (1 - correlation**n) / (n * (1 - correlation) ** 2)
    inflation = np.maximum(1.0, (1 + correlation) / (1 - correlation) - rest)
    return _with_errors(np.where(still, 0, variance * total) ** 0.25, se), inflation


def _has_one_mode(x: Array) -> npt.NDArray[np.bool_]:
    """Return where too few differences are large for a second mode to be tried."""
    d = np.concatenate([np.abs(x[:, k:] - x[:, :-k]) for k in (1, 2, 3)], axis=1)
    sd = np.quantile(d, 0.25, axis=1) / MODE_QUARTILE / math.sqrt(2)
    large = d > (MODE_GAP * math.sqrt(2) * np.maximum(sd, FLOOR))[:, None]
    return np.asarray(large.sum(axis=1) < MODE_SHARE * d.shape[1])


def _spreads(differences: Array) -> Array:
    """Return `levels.spread` of each row."""
    size = np.sort(np.abs(differences), axis=1)
    trimmed = size[:, : max(1, int(0.9 * size.shape[1]))]
    spread: Array = np.maximum(1.4826 * np.median(size, axis=1), trimmed.mean(axis=1))
    return spread / math.sqrt(2)


def _with_errors(sd: Array, se: Array) -> Array:
    """Return the deviation of each point, as `noise` has it."""
    between = np.maximum(0.0, sd**2 - np.median(se, axis=1) ** 2)
    return np.maximum(np.sqrt(between[:, None] + se**2), FLOOR)
