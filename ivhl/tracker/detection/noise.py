"""Describe the noise of a series: its width, its correlation, and whether it has two modes.

Benchmarks are correlated in time and often run at one of two speeds (memory layout, a neighbour on
the machine). Taken for independent noise, both look like steps.
"""

import math

import numpy as np

from ivhl.tracker.detection.levels import (
    BOUND,
    FLOOR,
    Array,
    Fit,
    Modes,
    Noise,
    fit,
    median,
    penalty,
    segments,
    spread,
)

LAGS = 4  # points: correlation beyond is counted as drift
LARGE = 5.0  # deviations: such a step is one, whatever the noise
MOST_CORRELATION = 0.6
FIT_INFLATION = 2.5  # the largest factor on the penalty of a fit

MOST_MODES = 3
MODE_SHARE = 0.08  # of differences that are large, where two modes are worth a try
MODE_GAP = 2.5  # deviations of a difference: from there on it is large
MODE_QUARTILE = 0.3186  # of the sizes of normal numbers
MODE_DISTANCE = 3.0  # deviations between modes, at least
MODE_TIGHT = (2.2, 0.15)  # largest spread of the distances: in deviations, or in distances
MODE_VISITS = 3  # of each mode, at least
MODE_COST = 4.0  # what two modes cost beside their three parameters, in twice nats
MODE_STEP = 1.3  # factor on the penalty of a step, since modes and steps compete
MODE_ROUNDS = 2
MODE_SWITCHING = (0.1, 0.95)  # probability per point; what lasts longer is a regime


def best_levels(x: Array, se: Array) -> list[int]:
    """Return the steps of the better explanation: independent noise, or correlated noise.

    The latter explains a series with fewer steps.

    Args:
        x: Values, shape ``[n]``.
        se: Standard error of each within its run, same unit, shape ``[n]``; 0 where it is not known.

    Source:
        Romano, Rigaill, Runge and Fearnhead, Detecting abrupt changes in the presence of local
        fluctuations and autocorrelated noise, arXiv:2005.01379; the choice is made by description
        length.
    """
    white = Noise(_with_errors(spread(np.diff(x)), se))
    many = fit(x, white.sd, penalty(len(x))).places
    correlated = noise_within(x, se, _large(x, white, many))
    factor = min(correlated.inflation(len(x)), FIT_INFLATION)
    few = fit(x, correlated.sd, penalty(len(x)) * factor).places
    return min((few, many), key=lambda places: _description(x, places))


def without_modes(x: Array, se: Array, places: list[int]) -> tuple[Array, list[int]]:
    """Return the values without what modes explain, and the steps that remain.

    Every value is moved to the lower mode; without modes it stays as it is.

    Args:
        x: Values, shape ``[n]``.
        se: Standard errors, shape ``[n]``.
        places: Steps that explain it without modes.
    """
    for _ in range(MOST_MODES):
        found = _second_mode(x, se, places)
        if found is None:
            break
        x, places = found
    return x, places


def _with_errors(sd: float, se: Array) -> Array:
    """Return the deviation of each point; a point with a wider interval deviates more."""
    between = max(0.0, sd**2 - median(se) ** 2)
    return np.maximum(np.sqrt(between + se**2), FLOOR)


def _regimes(n: int, places: list[int]) -> Array:
    """Return the number of its regime for each point."""
    starts = np.zeros(n)
    starts[places] = 1
    return np.cumsum(starts)


def _large(x: Array, noise: Noise, places: list[int]) -> list[int]:
    """Return the steps that no correlation explains."""
    medians = [median(x[a:b]) for a, b in segments(places, len(x))]
    steps = np.abs(np.diff(medians))
    return [m for m, d in zip(places, steps, strict=True) if d > LARGE * noise.typical]


def noise_within(x: Array, se: Array, places: list[int]) -> Noise:
    """Return the noise of a series with the given steps; `x` and `se` as in `best_levels`.

    It is estimated from differences of points of a regime that are up to eight apart.
    """
    regime = _regimes(len(x), places)
    variogram = []
    for lag in range(1, min(2 * LAGS, len(x) - 1) + 1):
        d = (x[lag:] - x[:-lag])[regime[lag:] == regime[:-lag]]
        if len(d) >= 3 * LAGS:
            variogram.append(spread(d) ** 2)
    variance = variogram[0] if variogram else spread(np.diff(x)) ** 2
    if len(variogram) < LAGS + 2 or variance == 0:
        return Noise(_with_errors(math.sqrt(variance), se))
    total = max(variance, min(median(np.asarray(variogram[LAGS - 1 :])), 9 * variance))
    rho = np.clip(1 - np.asarray(variogram[:LAGS]) / total, 0, 0.95)
    weights = 1 - np.arange(1, LAGS + 1) / (LAGS + 1)
    inflation = 1 + 2 * float(rho @ weights)
    correlation = min((inflation - 1) / (inflation + 1), MOST_CORRELATION)
    return Noise(_with_errors((variance * total) ** 0.25, se), correlation)


def _description(x: Array, places: list[int]) -> float:
    """Return the length of a series as steps and first-order autoregressive noise, in twice nats."""
    n = len(x)
    r = np.concatenate([x[a:b] - np.median(x[a:b]) for a, b in segments(places, n)])
    size = np.sort(np.abs(r))
    sd = max(1.4826 * median(size), 0.8 * float(size[: int(0.9 * n)].mean()), FLOOR)
    r = np.clip(r, -BOUND * sd, BOUND * sd)
    power = float(r[:-1] @ r[:-1])
    rho = float(np.clip(r[1:] @ r[:-1] / power, 0, 0.95)) if power else 0.0
    innovation = r[1:] - rho * r[:-1]
    variance = max(float(innovation @ innovation) / n, FLOOR**2)
    return n * math.log(variance) + penalty(n) * len(places)


def _second_mode(x: Array, se: Array, places: list[int]) -> tuple[Array, list[int]] | None:
    """Return values without a second mode and the steps that remain, or nothing where there is none.

    Source:
        Both explanations are compared by description length, as in Rissanen, Automatica 14 (1978);
        the modes are a hidden Markov chain, fitted by the most probable path.
    """
    noise = noise_within(x, se, places)
    guess = _guess_modes(x, se)
    if guess is None:
        return None
    n, (modes, sd) = len(x), guess
    plain = fit(x, noise.sd, penalty(n))
    least = plain.cost + 2 * float(np.log(noise.sd).sum())
    found = None
    for _ in range(MODE_ROUNDS):
        # A wild point must cost the same under both widths.
        bound = BOUND**2 + 2 * max(0.0, math.log(noise.typical / median(sd)))
        fitted = fit(x, sd, penalty(n) * MODE_STEP, modes=modes, bound=bound)
        total = fitted.cost + 2 * float(np.log(sd).sum()) + 3 * math.log(n) + MODE_COST
        if total < least:
            least, found = total, (x - modes.offset * fitted.mode, fitted.places)
        changes = int(np.abs(np.diff(fitted.mode)).sum())
        if changes < 2 * MODE_VISITS - 1:
            return None
        modes, sd = _refine(x, se, modes, fitted)
    return found


def _guess_modes(x: Array, se: Array) -> tuple[Modes, Array] | None:
    """Guess a second mode from differences of near points.

    With two modes many are about 0, many about one distance, and few between. A step touches six
    of them, too few to count.
    """
    d = np.concatenate([np.abs(x[k:] - x[:-k]) for k in (1, 2, 3)])
    if len(d) < 30:  # noqa: PLR2004 - ten points: fewer show no second mode
        return None
    sd = max(float(np.quantile(d, 0.25)) / MODE_QUARTILE / math.sqrt(2), FLOOR, _resolution(x) / 2)
    large = d[d > MODE_GAP * math.sqrt(2) * sd]
    if len(large) < MODE_SHARE * len(d):
        return None
    offset = median(large)
    tight = 1.4826 * median(np.abs(large - offset))
    if offset < MODE_DISTANCE * sd or tight > max(MODE_TIGHT[0] * sd, MODE_TIGHT[1] * offset):
        return None
    return Modes(offset, 0.25, 0.25), _with_errors(sd, se)


def _refine(x: Array, se: Array, modes: Modes, fitted: Fit) -> tuple[Modes, Array]:
    """Return modes and deviations as the fit has them."""
    on = fitted.mode == 1
    r = x - fitted.level - modes.offset * fitted.mode
    sd = max(1.4826 * median(np.abs(r)), FLOOR, _resolution(x) / 2)
    near = np.abs(r) < 4 * sd
    shift = [median(r[some & near]) if (some & near).any() else 0.0 for some in (on, ~on)]
    enter = (int((~on[:-1] & on[1:]).sum()) + 1) / (int((~on[:-1]).sum()) + 4)
    leave = (int((on[:-1] & ~on[1:]).sum()) + 1) / (int(on[:-1].sum()) + 4)
    refined = Modes(
        modes.offset + shift[0] - shift[1],
        float(np.clip(enter, *MODE_SWITCHING)),
        float(np.clip(leave, *MODE_SWITCHING)),
    )
    return refined, _with_errors(sd, se)


def _resolution(x: Array) -> float:
    """Return the step of rounded values; 0 where most values differ from all others."""
    different = np.unique(x)
    if len(different) < 2 or len(different) > len(x) / 2:  # noqa: PLR2004
        return 0.0
    return median(np.diff(different))
