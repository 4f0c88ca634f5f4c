"""Where a history of measurements changes its level.

`detect` looks at a series as it is today: append a point and call it again. A step is reported
once its evidence suffices, which takes two points of the new regime at least; a spike is no step.

All is done on logarithms, so that a step is a ratio: a series in seconds and the same in
milliseconds give the same steps, and so does the reciprocal. docs/detection.md has the figures,
docs/adr/0023 the reasons.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ivhl.tracker.detection.levels import (
    BOUND,
    FLOOR,
    GRID,
    Array,
    Noise,
    grid_of,
    location,
    median,
    penalty,
)
from ivhl.tracker.detection.noise import (
    FIT_INFLATION,
    LAGS,
    MODE_GAP,
    MODE_QUARTILE,
    MODE_SHARE,
    MOST_CORRELATION,
    best_levels,
    noise_within,
    without_modes,
)
from ivhl.tracker.detection.short_series import steps_of_few

# The values of a series and their 95 % intervals.
Searched = tuple[Sequence[float], Sequence[tuple[float, float]]]

FEWEST = 4  # points: with less there is no step
FEW = 16  # points: with less, prior knowledge of noise is needed
FEW_WITH_INTERVALS = 32  # intervals hold more than their values
Z95 = 1.959964  # half width of a 95 % interval in standard errors
LARGEST = 1e6  # of values that are not all positive, in units of their median size

WINDOW = 60  # points on each side that bear witness for a step
RELEVANT = 0.012  # smallest step, in log units
SIGNIFICANT = 1.45  # deviations, beside what the number of possible places adds
EARLY = 0.5  # deviations more for a step within the first EARLY_POINTS points
EARLY_POINTS = 8
PRIOR_POINTS = 10.0  # points that the estimate of the noise is worth in a test
APART = 0.6  # Cliff's delta: how far the values before and after must be apart
NOVEL = 5.5  # nats: a lasting step against an excursion as there were before
LASTING = 0.85  # probability that a point of the new regime is on its side of the middle
RETURN = 0.4  # share of a step: closer than this to the level before, it is back
BRIEF = 10  # points: shorter regimes are taken for excursions if the level comes back
STRONG = 1.6  # evidence for a brief regime
RAMP = 4.0  # squared deviations by which a straight line may be worse, and a bent one is better
JUMP = 0.5  # share of a step that must be left over a line that bends
SIDE = 5  # points on each side to tell a step from a line
LINE_ROUNDS = 4
NUDGE = 4  # points by which a step may be moved at last
NEAR = 40  # points on each side that decide where it is


def detect(
    values: Sequence[float], intervals: Sequence[tuple[float, float]] | None = None
) -> list[int]:
    """Return the indices of the first point of each new regime, ascending.

    The same input gives the same output. NaN and infinite values are left out, and the others keep
    their index. Where all values are positive, steps are ratios; otherwise (zero, negative) steps
    are differences relative to the median size of the values. A step below 1.2 % is not reported,
    nor one with a single point on either side.

    Args:
        values: Measurements in any unit, oldest first.
        intervals: The 95 % interval ``(low, high)`` of each value, which covers the noise within
            its run. One that is not finite, or whose ends are in the wrong order, counts as a
            typical one.

    Raises:
        ValueError: If there are not as many intervals as values.
    """
    return _detect(*_prepare(values, intervals), FEW if intervals is None else FEW_WITH_INTERVALS)


def detect_all(series: Sequence[Searched]) -> list[list[int]]:
    """Return what `detect` finds in each of many series; a history of thousands takes a fraction.

    Args:
        series: Values and intervals of each, as for `detect`.
    """
    prepared = [_prepare(*one) for one in series]
    by_length: dict[int, list[int]] = defaultdict(list)
    for i, (x, _, _) in enumerate(prepared):
        if len(x) >= FEW_WITH_INTERVALS:
            by_length[len(x)].append(i)
    quiet: set[int] = set()
    for group in by_length.values():
        x = np.stack([prepared[i][0] for i in group])
        se = np.stack([prepared[i][1] for i in group])
        quiet.update(i for i, none in zip(group, have_no_step(x, se), strict=True) if none)
    return [
        [] if i in quiet else _detect(*one, FEW_WITH_INTERVALS) for i, one in enumerate(prepared)
    ]


def _detect(x: Array, se: Array, index: npt.NDArray[np.intp], few: int) -> list[int]:
    """Return the steps of a prepared series, of which fewer points than `few` are few."""
    if len(x) < FEWEST:
        return []
    find = steps_of_few if len(x) < few else _steps_of_many
    return [int(index[place]) for place in find(x, se)]


def _prepare(
    values: Sequence[float], intervals: Sequence[tuple[float, float]] | None
) -> tuple[Array, Array, npt.NDArray[np.intp]]:
    """Return logarithms without their median, standard errors, and the index of each."""
    v = np.asarray(values, dtype=np.float64).reshape(-1)
    index = np.flatnonzero(np.isfinite(v))
    limits = np.stack([v, v], axis=1)
    if intervals is not None:
        limits = np.asarray(intervals, dtype=np.float64).reshape(-1, 2)
        if len(limits) != len(v):
            raise ValueError(f"{len(v)} values need as many intervals, not {len(limits)}")
    v, limits = v[index], limits[index]
    with np.errstate(all="ignore"):
        if (v > 0).all():
            x, limits = np.log(v), np.log(limits)
        else:
            scale = median(np.abs(v)) or float(np.abs(v).max())
            x, limits = (
                np.clip(np.nan_to_num(part / (scale or 1.0)), -LARGEST, LARGEST)
                for part in (v, limits)
            )
        se = (limits[:, 1] - limits[:, 0]) / (2 * Z95)
    known = np.isfinite(se) & (se >= 0)
    se = np.where(known, se, np.median(se[known]) if known.any() else 0.0)
    # Rounded, so that another unit gives the same numbers.
    return np.round(x - (np.median(x) if len(x) else 0), 10), se, index


def _steps_of_many(x: Array, se: Array) -> list[int]:
    """Fit levels, take out a second mode, drop steps with too little evidence, place the others."""
    x, places = without_modes(x, se, best_levels(x, se))
    noise = noise_within(x, se, places)
    for _ in range(2):
        places = _without_returns(x, *_prune(x, noise, places))
        noise = noise_within(x, se, places)
    return _placed(x, noise, places)


def _prune(x: Array, noise: Noise, places: list[int]) -> tuple[list[int], list[float]]:
    """Drop the step with the least evidence until all have enough; return the evidence, too."""
    ends = [0, *places, len(x)]
    scores = [_evidence(x, noise, *ends[i : i + 3]) for i in range(len(places))]
    while scores:
        worst = int(np.argmin(scores))
        if scores[worst] >= 1:
            break
        del scores[worst], ends[worst + 1]
        for i in range(max(0, worst - 1), min(len(scores), worst + 1)):
            scores[i] = _evidence(x, noise, *ends[i : i + 3])
    return ends[1:-1], scores


def _without_returns(x: Array, places: list[int], scores: list[float]) -> list[int]:
    """Drop short regimes after which the level is as before, unless their evidence is strong."""
    ends = [0, *places, len(x)]
    medians = [median(x[max(a, b - WINDOW) : b]) for a, b in pairwise(ends)]
    dropped: set[int] = set()
    for i in range(1, len(places)):
        before, here, after = medians[i - 1 : i + 2]
        back = abs(after - before) < RETURN * abs(here - before)
        if back and places[i] - places[i - 1] < BRIEF and min(scores[i - 1 : i + 1]) < STRONG:
            dropped |= {i - 1, i}
    return [place for i, place in enumerate(places) if i not in dropped]


@dataclass(frozen=True, slots=True)
class _Side:
    """Values on one side of a step."""

    x: Array
    weight: Array
    centre: float


def _evidence(x: Array, noise: Noise, start: int, middle: int, end: int) -> float:
    """Return the evidence for a step at `middle` between two regimes; 1 suffices.

    It is the least of several criteria, each divided by what it must reach: a chain of arguments
    holds as much as its weakest link.
    """
    if min(middle - start, end - middle) < 2:  # noqa: PLR2004 - a spike
        return 0.0
    where = slice(max(start, middle - WINDOW), middle), slice(middle, min(end, middle + WINDOW))
    away = np.concatenate([np.abs(x[part] - np.median(x[part])) for part in where])
    scale = max(noise.typical, 1.4826 * median(away))
    weights = [1 / noise.sd[part] ** 2 for part in where]
    left, right = (
        _Side(x[part], weight, location(x[part], weight, scale))
        for part, weight in zip(where, weights, strict=True)
    )
    size = right.centre - left.centre
    early = EARLY if start == 0 and middle < EARLY_POINTS else 0.0
    score = min(
        abs(size) / RELEVANT,
        _significance(left, right, noise, scale, early),
        _apart(left.x, right.x) / APART,
        _novelty(left, right) / NOVEL,
    )
    trend = score >= 1 and (_is_ramp(left, right) or _is_bend(left, right))
    return 0.9 if trend else score


def _significance(left: _Side, right: _Side, noise: Noise, scale: float, early: float) -> float:
    """Return a robust t for the difference of two sides, over what it must reach.

    The shorter the regime, the more places it could have been at: the critical value grows with
    ``sqrt(2 log(n/m))``.

    Source:
        Frick, Munk and Sieling, Multiscale change point inference, J. R. Stat. Soc. B 76 (2014),
        equation (5).
    """
    counts = len(left.x), len(right.x)
    squares = sum(
        float(np.clip(side.x - side.centre, -BOUND * scale, BOUND * scale) ** 2 @ side.weight)
        for side in (left, right)
    )
    freedom = PRIOR_POINTS + sum(counts) - 2
    variance = max((PRIOR_POINTS + squares) / freedom, 0.6)
    error = math.sqrt(
        1.05
        * variance
        * sum(noise.inflation(len(side.x)) / float(side.weight.sum()) for side in (left, right))
    )
    places = math.sqrt(2 * math.log(math.e * sum(counts) / min(counts)))
    critical = _student(SIGNIFICANT + places + early, freedom)
    return abs(right.centre - left.centre) / error / critical


def _student(z: float, freedom: float) -> float:
    """Return the quantile of Student's t at the level at which the normal one is `z`.

    Source:
        Cornish-Fisher expansion: Abramowitz and Stegun, 26.7.5.
    """
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def _apart(left: Array, right: Array) -> float:
    """Return the size of Cliff's delta, in ``[0, 1]``: 1 where the two sides do not overlap."""
    ordered = np.sort(left)
    below = np.searchsorted(ordered, right, side="left") + np.searchsorted(
        ordered, right, side="right"
    )
    return abs(float(below.mean()) / len(left) - 1)


def _novelty(left: _Side, right: _Side) -> float:
    """Return how much likelier a step is than an excursion of the longer side, in nats."""
    middle, up = (left.centre + right.centre) / 2, right.centre > left.centre
    beyond = (left.x > middle, right.x > middle) if up else (left.x < middle, right.x < middle)
    if len(left.x) < len(right.x):
        return _excess(~beyond[1][::-1], ~beyond[0][::-1])
    return _excess(beyond[0], beyond[1])


def _excess(history: npt.NDArray[np.bool_], new: npt.NDArray[np.bool_]) -> float:
    """Return the log likelihood ratio of a new regime against the history going on, in nats.

    Both are Markov chains of whether a point is beyond the middle.

    Args:
        history: For each point of the long-standing regime.
        new: For each point of what may be another one.
    """
    n, count = len(history), int(history.sum())
    pairs = int((history[1:] & history[:-1]).sum())
    share = min((count + 0.5) / (n + 1), 0.95)
    enter = min((count - pairs + 0.5) / (n - count + 1), 0.95)
    prior = max(share, 0.25)
    stay = min((pairs + 3 * prior) / (max(0, count - int(history[-1])) + 3), 0.95)
    a, b = new[:-1], new[1:]
    from_on, on = int(a.sum()), int((a & b).sum())
    off = int((~a & b).sum())
    from_off = len(a) - from_on
    return _nats(int(new[0]), 1, share) + _nats(on, from_on, stay) + _nats(off, from_off, enter)


def _nats(beyond: int, of: int, usual: float) -> float:
    """Return the log likelihood ratio of `LASTING` against the usual share of points beyond."""
    return beyond * math.log(LASTING / usual) + (of - beyond) * math.log(
        (1 - LASTING) / (1 - usual)
    )


def _is_ramp(left: _Side, right: _Side) -> bool:
    """Tell whether a straight line is about as good as the step."""
    if min(len(left.x), len(right.x)) < SIDE:
        return False
    x, w = np.concatenate([left.x, right.x]), np.concatenate([left.weight, right.weight])
    step = np.concatenate([np.full(len(side.x), side.centre) for side in (left, right)])
    loss = (x - step) ** 2 * w
    keep = loss < BOUND**2
    if int(keep.sum()) < SIDE:
        return False
    time, y, v = np.flatnonzero(keep).astype(np.float64), x[keep], w[keep]
    time0, y0 = float(v @ time / v.sum()), float(v @ y / v.sum())
    slope = float(v @ ((time - time0) * (y - y0))) / float(v @ (time - time0) ** 2)
    line = y0 + slope * (np.arange(len(x)) - time0)
    best = float(np.minimum((x - line) ** 2 * w, BOUND**2).sum())
    return best <= float(np.minimum(loss, BOUND**2).sum()) + RAMP


def _is_bend(left: _Side, right: _Side) -> bool:
    """Tell whether a line that bends at the step explains it better, with little of a jump left.

    Growth that slows down, or a slow wave, is no step, though it is no straight line either.
    """
    if min(len(left.x), len(right.x)) < SIDE:
        return False
    x, w = np.concatenate([left.x, right.x]), np.concatenate([left.weight, right.weight])
    time = (np.arange(len(x)) - (len(left.x) - 0.5)) / WINDOW
    after = time > 0
    step = np.where(after, right.centre, left.centre)
    bend = np.stack([np.ones_like(time), time, np.maximum(time, 0)], axis=1)
    line, scale = _line(bend, x, w)
    bent, stepped = (
        float(np.minimum((x - fitted) ** 2 * w / scale**2, BOUND**2).sum())
        for fitted in (line, step)
    )
    if bent > stepped - RAMP:
        return False
    apart, _ = _line(np.column_stack([bend, after]), x, w)
    slopes = (apart[1] - apart[0] + apart[-1] - apart[-2]) / 2
    jump = apart[len(left.x)] - apart[len(left.x) - 1] - slopes
    return bool(abs(jump) < JUMP * abs(right.centre - left.centre))


def _line(terms: Array, x: Array, w: Array) -> tuple[Array, float]:
    """Fit a sum of terms, with less weight for what is far from it; return it, and its noise.

    Args:
        terms: Shape ``[n, terms]``.
        x: Values, shape ``[n]``.
        w: Inverse of the variance of each, shape ``[n]``.

    Returns:
        The fitted values, and how many times as large as expected their deviations are, at least 1.
    """
    near, line, scale = np.ones_like(x), x, 1.0
    for _ in range(LINE_ROUNDS):
        weighted = (terms * (w * near)[:, None]).T
        line = terms @ np.linalg.solve(weighted @ terms, weighted @ x)
        away = np.abs(x - line) * np.sqrt(w)
        scale = max(1.0, 1.4826 * median(away))
        near = np.minimum(1, BOUND * scale / np.maximum(away, FLOOR)) ** 2
    return line, scale


def _placed(x: Array, noise: Noise, places: list[int]) -> list[int]:
    """Move each step by a few points to where the two levels around it fit best.

    The loss is that of Student's t with three degrees of freedom: a wild point still belongs to the
    nearer level.
    """
    moved = []
    ends = [0, *places, len(x)]
    for i, middle in enumerate(places):
        start, end = max(ends[i], middle - NEAR), min(ends[i + 2], middle + NEAR)
        weight = 1 / noise.sd[start:end] ** 2
        centres = (
            location(x[start:middle], weight[: middle - start], noise.typical),
            location(x[middle:end], weight[middle - start :], noise.typical),
        )
        loss = [np.log1p((x[start:end] - centre) ** 2 * weight / 3) for centre in centres]
        gain = np.cumsum(loss[1] - loss[0])  # of having the points up to here on the left
        low, high = max(ends[i] + 1, middle - NUDGE), min(ends[i + 2] - 1, middle + NUDGE)
        near = np.round(gain[low - 1 - start : high - start], 9)
        moved.append(low + int(np.argmax(near)))
    return sorted(set(moved))


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
