"""Where a history of measurements changes its level."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["detect"]

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SHORT = 16
SHORT_WITH_INTERVALS = 32

Z95 = 1.959964
FLOOR = 0.0012

BOUND = 3.0
PENALTY = (3.5, 1.9)
GRID = 0.25
REACH = 4
MOST_LEVELS = 2500
CHUNK = 512

LAGS = 4
MOST_INFLATION = 4.0

WINDOW = 60
SMALLEST = 0.012
CRITICAL = 3.4
PRIOR_POINTS = 10.0
OVERLAP = 0.5
NOVELTY = 4.5
RAMP = 1.0


def detect(
    values: Sequence[float], intervals: Sequence[tuple[float, float]] | None = None
) -> list[int]:
    x, se, index = _prepare(values, intervals)
    n = len(x)
    if n < 4:
        return []
    if n < (SHORT if intervals is None else SHORT_WITH_INTERVALS):
        places = _short(x, se)
    else:
        places = _long(x, se)
    return sorted({int(index[place]) for place in places})


def _prepare(values, intervals):
    v = np.asarray(values, dtype=np.float64)
    index = np.flatnonzero(np.isfinite(v))
    v = v[index]
    if not len(v):
        return v, v, index
    limits = None
    if intervals is not None:
        limits = np.asarray(intervals, dtype=np.float64).reshape(-1, 2)[index]
    with np.errstate(all="ignore"):
        if (v > 0).all():
            x = np.log(v)
            width = np.log(limits[:, 1]) - np.log(limits[:, 0]) if limits is not None else np.zeros(len(v))
        else:
            scale = float(np.median(np.abs(v))) or float(np.abs(v).max()) or 1.0
            x = np.clip(v / scale, -1e6, 1e6)
            width = (limits[:, 1] - limits[:, 0]) / scale if limits is not None else np.zeros(len(v))
        se = width / (2 * Z95)
    good = np.isfinite(se) & (se >= 0)
    se = np.where(good, se, np.median(se[good]) if good.any() else 0.0)
    return np.round(x - np.median(x), 10), se, index


# ---- long series
@dataclass(frozen=True, slots=True)
class _Noise:
    sd: Array
    inflation: float

    @property
    def typical(self) -> float:
        return float(np.median(self.sd))


def _long(x: Array, se: Array) -> list[int]:
    white = _white(x, se)
    many = _fit(x, white)
    noise = _noise(x, se, _large(x, white, many))
    few = _fit(x, noise)
    places = min((few, many), key=lambda found: _description(x, found))
    noise = _noise(x, se, places)
    for _ in range(3):
        modes = _modes(x, se, noise, places)
        if modes is None:
            break
        x, places = modes
        noise = _noise(x, se, places)
    places = _prune(x, noise, places)
    noise = _noise(x, se, places)
    places = _prune(x, noise, places)
    return _relocate(x, noise, places)


def _white(x: Array, se: Array) -> _Noise:
    between = max(0.0, _spread(np.diff(x)) ** 2 - float(np.median(se)) ** 2)
    return _Noise(np.maximum(np.sqrt(between + se**2), FLOOR), 1.0)


def _description(x: Array, places: list[int]) -> float:
    """Length of the series as levels plus first-order autoregressive noise, twice nats."""
    n = len(x)
    r = np.empty(n)
    for a, b in pairwise([0, *places, n]):
        r[a:b] = x[a:b] - np.median(x[a:b])
    sd = max(1.4826 * float(np.median(np.abs(r))), 0.8 * float(np.sort(np.abs(r))[: int(0.9 * n)].mean()), FLOOR)
    r = np.clip(r, -BOUND * sd, BOUND * sd)
    power = float(r[:-1] @ r[:-1])
    rho = max(0.0, min(0.95, float(r[1:] @ r[:-1]) / power)) if power > 0 else 0.0
    e = r[1:] - rho * r[:-1]
    variance = max(float(e @ e) / n, FLOOR**2)
    return n * math.log(variance) + (PENALTY[0] + PENALTY[1] * math.log(n)) * len(places)


def _spread(d: Array) -> float:
    """Robust sd of differences over sqrt 2."""
    if not len(d):
        return 0.0
    a = np.sort(np.abs(d))
    mad = 1.4826 * float(np.median(a))
    trimmed = a[: max(1, int(0.9 * len(a)))]
    return max(mad, float(trimmed.mean())) / math.sqrt(2)


def _large(x: Array, noise: _Noise, places: list[int]) -> list[int]:
    ends = [0, *places, len(x)]
    return [
        m
        for a, m, b in zip(ends, ends[1:], ends[2:], strict=False)
        if abs(np.median(x[m:b]) - np.median(x[a:m])) > 5 * noise.typical
    ]


def _noise(x: Array, se: Array, places: list[int]) -> _Noise:
    n = len(x)
    regime = np.zeros(n, dtype=np.int64)
    regime[places] = 1
    regime = np.cumsum(regime)
    variogram = []
    for lag in range(1, 2 * LAGS + 1):
        if lag >= n:
            break
        same = regime[lag:] == regime[:-lag]
        d = (x[lag:] - x[:-lag])[same]
        if len(d) >= 12:
            variogram.append(_spread(d) ** 2)
    inflation, variance = 1.0, variogram[0] if variogram else _spread(np.diff(x)) ** 2
    if len(variogram) >= LAGS + 2 and variance > 0:
        total = max(variance, min(float(np.median(variogram[LAGS - 1 :])), 9 * variance))
        rho = np.clip(1 - np.asarray(variogram[:LAGS]) / total, 0, 0.95)
        weights = 1 - np.arange(1, LAGS + 1) / (LAGS + 1)
        inflation = min(1 + 2 * float(rho @ weights), MOST_INFLATION)
        variance = math.sqrt(variance * total)
    between = max(0.0, variance - float(np.median(se)) ** 2)
    return _Noise(np.maximum(np.sqrt(between + se**2), FLOOR), inflation)


def _fit(x: Array, noise: _Noise) -> list[int]:
    n = len(x)
    levels = _levels(x, noise.typical * GRID)
    penalty = (PENALTY[0] + PENALTY[1] * math.log(n)) * min(noise.inflation, 2.5)
    cost = np.zeros(len(levels))
    jumped = np.zeros((n, len(levels)), dtype=np.bool_)
    best = np.zeros(n, dtype=np.int64)
    for start in range(0, n, CHUNK):
        end = min(n, start + CHUNK)
        loss = (x[start:end, None] - levels) / noise.sd[start:end, None]
        np.square(loss, out=loss)
        np.minimum(loss, BOUND**2, out=loss)
        for t in range(start, end):
            if t:
                best[t] = cost.argmin()
                limit = cost[best[t]] + penalty
                np.greater(cost, limit, out=jumped[t])
                np.minimum(cost, limit, out=cost)
            cost += loss[t - start]
    places, level = [], int(cost.argmin())
    for t in range(n - 1, 0, -1):
        if jumped[t, level]:
            places.append(t)
            level = int(best[t])
    return places[::-1]


MODE_FRACTION = 0.08
MODE_PENALTY = 1.3
MODE_COST = 10.0


@dataclass(frozen=True, slots=True)
class _Modes:
    offset: float
    sd: Array
    enter: float
    leave: float


def _modes(x, se, noise, places):
    """Return values without their mode, and places, where two modes explain the series better."""
    start = _guess(x, se, _large(x, noise, places))
    if start is None:
        return None
    n = len(x)
    penalty = PENALTY[0] + PENALTY[1] * math.log(n)
    plain = _level_cost(x, noise, places) + 2 * float(np.log(noise.sd).sum()) + penalty * len(places)
    best = None
    for _ in range(2):
        bound = BOUND**2 + 2 * max(0.0, math.log(noise.typical / float(np.median(start.sd))))
        cost, places, mode, level = _fit_modes(x, start, bound, penalty * MODE_PENALTY)
        total = cost + 2 * float(np.log(start.sd).sum()) + 3 * math.log(n) + MODE_COST
        if best is None or total < best[0]:
            best = (total, x - start.offset * mode, places)
        visits = int((mode[1:] > mode[:-1]).sum()) + int(mode[0])
        if visits < 3 or visits > n - 3:
            return None
        start = _refine(x, se, start, mode, level)
    assert best is not None
    if best[0] >= plain:
        return None
    return best[1], best[2]


def _guess(x, se, places):
    n = len(x)
    regime = np.zeros(n, dtype=np.int64)
    regime[places] = 1
    regime = np.cumsum(regime)
    d = np.concatenate([np.abs(x[k:] - x[:-k])[regime[k:] == regime[:-k]] for k in (1, 2, 3)])
    if len(d) < 30:
        return None
    sd = max(float(np.quantile(d, 0.25)) / 0.3186 / math.sqrt(2), FLOOR, _resolution(x) / 2)
    big = d[d > 2.5 * math.sqrt(2) * sd]
    if len(big) < MODE_FRACTION * len(d):
        return None
    offset = float(np.median(big))
    tight = 1.4826 * float(np.median(np.abs(big - offset)))
    if offset < 3 * sd or tight > 2.2 * sd:
        return None
    between = max(0.0, sd**2 - float(np.median(se)) ** 2)
    return _Modes(offset, np.maximum(np.sqrt(between + se**2), FLOOR), 0.25, 0.25)


def _resolution(x: Array) -> float:
    """Return the step of rounded values; 0 where most values differ from all others."""
    different = np.unique(x)
    if len(different) < 2 or len(different) > len(x) / 2:
        return 0.0
    return float(np.median(np.diff(different)))


def _refine(x, se, old, mode, level):
    r = x - level - old.offset * mode
    sd = max(1.4826 * float(np.median(np.abs(r))), FLOOR, _resolution(x) / 2)
    on = mode == 1
    near = np.abs(r) < 4 * sd
    shift = float(np.median(r[on & near])) if (on & near).any() else 0.0
    shift -= float(np.median(r[~on & near])) if (~on & near).any() else 0.0
    up = int((~on[:-1] & on[1:]).sum())
    down = int((on[:-1] & ~on[1:]).sum())
    enter = (up + 1) / (int((~on[:-1]).sum()) + 4)
    leave = (down + 1) / (int(on[:-1].sum()) + 4)
    between = max(0.0, sd**2 - float(np.median(se)) ** 2)
    return _Modes(
        old.offset + shift,
        np.maximum(np.sqrt(between + se**2), FLOOR),
        float(np.clip(enter, 0.05, 0.95)),
        float(np.clip(leave, 0.05, 0.95)),
    )


def _level_cost(x: Array, noise: _Noise, places: list[int]) -> float:
    ends = [0, *places, len(x)]
    total = 0.0
    for a, b in pairwise(ends):
        sd = noise.sd[a:b]
        m = _location(x[a:b], 1 / sd**2, noise.typical)
        total += float(np.minimum(((x[a:b] - m) / sd) ** 2, BOUND**2).sum())
    return total


def _levels(x: Array, step: float) -> Array:
    cells = np.round(x / step)
    levels = np.unique((cells[:, None] + np.arange(-REACH, REACH + 1)).ravel()) * step
    if len(levels) > MOST_LEVELS:
        levels = np.unique(np.quantile(x, np.linspace(0, 1, MOST_LEVELS)))
    return levels


def _fit_modes(x, model, bound, penalty):
    n = len(x)
    levels = _levels(x, float(np.median(model.sd)) * GRID)
    count = len(levels)
    both = np.concatenate([levels, levels + model.offset])
    stay0, go1 = -2 * math.log(1 - model.enter), -2 * math.log(model.enter)
    stay1, go0 = -2 * math.log(1 - model.leave), -2 * math.log(model.leave)
    stay = np.repeat([stay0, stay1], count)
    go = np.repeat([go0, go1], count)
    cost = np.zeros(2 * count)
    other = np.empty(2 * count)
    switched = np.zeros((n, 2 * count), dtype=np.bool_)
    jumped = np.zeros((n, 2 * count), dtype=np.bool_)
    best = np.zeros(n, dtype=np.int64)
    for start in range(0, n, CHUNK):
        end = min(n, start + CHUNK)
        loss = (x[start:end, None] - both) / model.sd[start:end, None]
        np.square(loss, out=loss)
        np.minimum(loss, bound, out=loss)
        for t in range(start, end):
            if t:
                best[t] = cost.argmin()
                limit = cost[best[t]] + penalty
                np.add(cost[count:], go[:count], out=other[:count])
                np.add(cost[:count], go[count:], out=other[count:])
                cost += stay
                np.less(other, cost, out=switched[t])
                np.minimum(cost, other, out=cost)
                np.greater(cost, limit, out=jumped[t])
                np.minimum(cost, limit, out=cost)
            cost += loss[t - start]
    state = int(cost.argmin())
    total = float(cost[state])
    mode, level, places = np.zeros(n), np.zeros(n), []
    for t in range(n - 1, -1, -1):
        mode[t], level[t] = state >= count, levels[state % count]
        if t and jumped[t, state]:
            places.append(t)
            state = int(best[t])
        elif t and switched[t, state]:
            state = (state + count) % (2 * count)
    return total, places[::-1], mode, level


def _location(x: Array, weight: Array, scale: float) -> float:
    m = float(np.median(x))
    if len(x) < 3:
        return float(x @ weight / weight.sum())
    for _ in range(3):
        u = (x - m) / (4 * scale)
        w = np.maximum(1 - u * u, 0) ** 2 * weight
        total = float(w.sum())
        if total <= 0:
            return m
        m = float(w @ x) / total
    return m


def _student(z: float, df: float) -> float:
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + g1 / df + g2 / df**2


def _novelty(history: Array, new: Array, middle: float, up: bool) -> float:
    """Log likelihood ratio of a lasting change against an excursion such as history has had."""
    old, now = (history > middle, new > middle) if up else (history < middle, new < middle)
    k, m = int(old.sum()), len(old)
    q = (k + 0.5) / (m + 1)
    pairs = int((old[1:] & old[:-1]).sum())
    stay = (pairs + 0.3) / (max(0, k - int(old[-1])) + 1)
    enter = (k - pairs + 0.5) / (m - k + 1)
    enter, stay = min(enter, 0.95), min(stay, 0.95)
    llr = math.log(0.85 / q) if now[0] else math.log(0.15 / (1 - min(q, 0.95)))
    a, b = now[:-1], now[1:]
    n11, n10, n01 = int((a & b).sum()), int((a & ~b).sum()), int((~a & b).sum())
    n00 = len(a) - n11 - n10 - n01
    return (
        llr
        + n11 * math.log(0.85 / stay)
        + n10 * math.log(0.15 / (1 - stay))
        + n01 * math.log(0.85 / enter)
        + n00 * math.log(0.15 / (1 - enter))
    )


def _evidence(x: Array, noise: _Noise, a: int, m: int, b: int) -> float:
    """Smallest of the criteria, each divided by what it must reach."""
    left, right = slice(max(a, m - WINDOW), m), slice(m, min(b, m + WINDOW))
    xl, xr = x[left], x[right]
    wl, wr = 1 / noise.sd[left] ** 2, 1 / noise.sd[right] ** 2
    rl, rr = np.abs(xl - np.median(xl)), np.abs(xr - np.median(xr))
    pooled = np.concatenate([rl, rr])
    scale = max(noise.typical, 1.4826 * float(np.median(pooled)))
    ml, mr = _location(xl, wl, scale), _location(xr, wr, scale)
    d = mr - ml
    nl, nr = len(xl), len(xr)
    cl = np.clip((xl - ml), -BOUND * scale, BOUND * scale) ** 2
    cr = np.clip((xr - mr), -BOUND * scale, BOUND * scale) ** 2
    ratio = (PRIOR_POINTS + float(cl @ wl + cr @ wr)) / (PRIOR_POINTS + max(nl + nr - 2, 1))
    error = math.sqrt(max(ratio, 0.6) * noise.inflation * (1 / wl.sum() + 1 / wr.sum()) * 1.05)
    t = abs(d) / max(error, 1e-12) / _student(CRITICAL, PRIOR_POINTS + nl + nr - 2)
    order = np.searchsorted(np.sort(xl), xr, side="left") + np.searchsorted(np.sort(xl), xr, side="right")
    cliff = abs(float(order.mean()) / nl - 1)
    middle = (ml + mr) / 2
    novel = max(_novelty(xl, xr, middle, d > 0), _novelty(xr[::-1], xl[::-1], middle, d < 0))
    score = min(abs(d) / SMALLEST, t, cliff / OVERLAP, novel / NOVELTY)
    if score >= 1 and nl >= 5 and nr >= 5:
        score = min(score, _ramp(np.concatenate([xl, xr]), np.concatenate([wl, wr]), nl, ml, mr))
    return score


def _ramp(x: Array, w: Array, nl: int, ml: float, mr: float) -> float:
    n = len(x)
    time = np.arange(n) - (n - 1) / 2
    step = np.where(np.arange(n) < nl, ml, mr)
    k = BOUND**2
    z = (x - step) ** 2 * w
    cost_step = float(np.minimum(z, k).sum())
    keep = z < k
    t, y, v = time[keep], x[keep], w[keep]
    if len(t) < 4:
        return math.inf
    tm, ym = float(v @ t / v.sum()), float(v @ y / v.sum())
    slope = float(v @ ((t - tm) * (y - ym))) / max(float(v @ (t - tm) ** 2), 1e-12)
    line = ym + slope * (time - tm)
    cost_line = float(np.minimum((x - line) ** 2 * w, k).sum())
    return math.inf if cost_line > cost_step + RAMP else 0.9


def _prune(x: Array, noise: _Noise, places: list[int]) -> list[int]:
    ends = [0, *places, len(x)]
    scores = [_evidence(x, noise, a, m, b) for a, m, b in zip(ends, ends[1:], ends[2:], strict=False)]
    while scores:
        worst = int(np.argmin(scores))
        if scores[worst] >= 1:
            break
        del scores[worst]
        del ends[worst + 1]
        for i in (worst - 1, worst):
            if 0 <= i < len(scores):
                scores[i] = _evidence(x, noise, *ends[i : i + 3])
    return ends[1:-1]


def _relocate(x: Array, noise: _Noise, places: list[int]) -> list[int]:
    ends = [0, *places, len(x)]
    moved = []
    for a, m, b in zip(ends, ends[1:], ends[2:], strict=False):
        a0, b0 = max(a, m - 40), min(b, m + 40)
        w = 1 / noise.sd[a0:b0] ** 2
        ml = _location(x[a0:m], w[: m - a0], noise.typical)
        mr = _location(x[m:b0], w[m - a0 :], noise.typical)
        gain = np.minimum((x[a0:b0] - mr) ** 2 * w, 9) - np.minimum((x[a0:b0] - ml) ** 2 * w, 9)
        # gain[i] > 0: the point belongs to the left
        total = np.cumsum(gain)
        lo, hi = max(a + 1, m - 4), min(b - 1, m + 4)
        at = [float(total[k - 1 - a0]) for k in range(lo, hi + 1)]
        moved.append(lo + int(np.argmax(np.round(at, 9))))
    return moved


# ---- short series
TAUS = np.exp(np.linspace(math.log(0.0015), math.log(0.12), 14))
TAU_MEDIAN, TAU_SD = 0.010, 0.8
JUMP_RATE, JUMP_SIZE = 1 / 30, 0.12
WILD, WILD_WIDTH = 0.06, 5.0
ROPE = 0.02
REPORT = 0.7


def _short(x: Array, se: Array) -> list[int]:
    p = _posterior(x, se)
    n = len(x)
    places = []
    while True:
        near = np.convolve(p, np.ones(3), mode="same")
        near[0] = 0
        t = int(near.argmax())
        if near[t] < REPORT:
            return sorted(places)
        lo, hi = max(1, t - 1), min(n, t + 2)
        places.append(lo + int(p[lo:hi].argmax()))
        p[max(0, t - 1) : t + 2] = 0


def _posterior(x: Array, se: Array) -> Array:
    """Probability that the level changes by more than ROPE at each point."""
    n = len(x)
    low, high = x.min() - 0.01, x.max() + 0.01
    count = int(np.clip((high - low) / 0.004, 60, 240))
    g = np.linspace(low, high, count)
    distance = np.abs(g[:, None] - g)
    jump = np.exp(-distance / JUMP_SIZE)
    jump /= jump.sum(axis=1, keepdims=True)
    relevant = np.where(distance > ROPE, jump, 0)
    v = np.sqrt(se[:, None] ** 2 + TAUS**2)[:, :, None]  # [n, tau, 1]
    z = ((x[:, None] - g)[:, None, :] / v) ** 2
    like = ((1 - WILD) * np.exp(-z / 2) + WILD / WILD_WIDTH * np.exp(-z / (2 * WILD_WIDTH**2))) / v + 1e-300
    forward = np.zeros_like(like)
    f = like[0] / count
    scale = np.zeros((n, len(TAUS)))
    scale[0] = f.sum(axis=1)
    forward[0] = f / scale[0][:, None]
    for t in range(1, n):
        f = ((1 - JUMP_RATE) * forward[t - 1] + JUMP_RATE * (forward[t - 1] @ jump)) * like[t]
        scale[t] = f.sum(axis=1)
        forward[t] = f / scale[t][:, None]
    evidence = np.log(scale).sum(axis=0) - ((np.log(TAUS) - math.log(TAU_MEDIAN)) / TAU_SD) ** 2 / 2
    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    p = np.zeros(n)
    back = np.ones((len(TAUS), count))
    for t in range(n - 1, 0, -1):
        m = like[t] * back / scale[t][:, None]
        p[t] = weight @ (JUMP_RATE * ((forward[t - 1] @ relevant) * m).sum(axis=1))
        back = (1 - JUMP_RATE) * m + JUMP_RATE * (m @ jump.T)
    return p
