"""Series with planted changes: our own generators, seeded.

All noise is added to the logarithm of the level, so ``sd`` is relative. Sizes and lengths are those
of the series in ``detection/data/dev``: 30 to 200 points, steps of 2 to 30 %, noise of 0.5 to 3 %,
half of all series without a change.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .series import LabelledSeries

__all__ = ["FAMILIES", "delay", "mixed", "ratio", "synth"]

Array = npt.NDArray[np.float64]
DrawNoise = Callable[[np.random.Generator, int, float], Array]

STEPS = (0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3)
DEVIATIONS = (0.005, 0.01, 0.02, 0.03)
HALF = 0.5
UNCHANGED = 0.54  # share of series without a change
WILD = 0.04  # share of ratios that deviate five times as much
EDGE = 7  # shortest regime at the start of a series, in points


def _gauss(rng: np.random.Generator, n: int, sd: float) -> Array:
    return rng.normal(0, sd, n)


def _student3(rng: np.random.Generator, n: int, sd: float) -> Array:
    return np.asarray(rng.standard_t(3, n) * sd)


def _skew(rng: np.random.Generator, n: int, sd: float) -> Array:
    """Contention only ever slows down: exponential."""
    return rng.exponential(sd, n)


def _outliers(rng: np.random.Generator, n: int, sd: float) -> Array:
    """One point in 20 is 20 to 70 % slower."""
    rare = rng.random(n) < rng.uniform(0.01, 0.1)
    return rng.normal(0, sd, n) + rare * rng.uniform(0.2, 0.7, n)


def _spikes(rng: np.random.Generator, n: int, sd: float) -> Array:
    """Excursions of one or two points."""
    x = rng.normal(0, sd, n)
    for start in np.flatnonzero(rng.random(n) < rng.uniform(0.005, 0.02)):
        x[start : start + rng.integers(1, 3)] += rng.uniform(0.15, 0.4)
    return x


def _bimodal(rng: np.random.Generator, n: int, sd: float) -> Array:
    """Each point draws its mode."""
    return rng.normal(0, sd / 3, n) + (rng.random(n) < rng.uniform(0.08, 0.5)) * rng.uniform(
        0.02, 0.08
    )


def _sticky(rng: np.random.Generator, n: int, sd: float) -> Array:
    """A mode lasts two to eight points."""
    on, off = rng.uniform(0.12, 0.5, 2)
    mode = np.zeros(n)
    state = rng.random() < HALF
    for i in range(n):
        state = state ^ (rng.random() < (off if state else on))
        mode[i] = state
    return rng.normal(0, sd / 3, n) + mode * rng.uniform(0.03, 0.08)


def _hetero(rng: np.random.Generator, n: int, sd: float) -> Array:
    """The noise is two to four times as wide in one stretch."""
    a, b = sorted(rng.integers(0, n, 2))
    width = np.full(n, sd)
    width[a:b] *= rng.uniform(2, 4)
    return np.asarray(rng.normal(0, 1, n) * width)


def _drift(rng: np.random.Generator, n: int, sd: float) -> Array:
    """A straight line, up to four deviations from end to end."""
    return rng.normal(0, sd, n) + np.linspace(0, rng.uniform(-4, 4) * sd, n)


def _wander(rng: np.random.Generator, n: int, sd: float) -> Array:
    """A slow wave or a small random walk below white noise."""
    if rng.random() < HALF:
        phase = rng.uniform(0, 2 * np.pi)
        slow = (
            np.sin(np.linspace(phase, phase + rng.uniform(1, 4) * np.pi, n))
            * sd
            * rng.uniform(0.2, 1)
        )
    else:
        slow = np.cumsum(rng.normal(0, sd * rng.uniform(0.02, 0.12), n))
    return np.asarray(rng.normal(0, sd, n) + slow)


def _ar1(rng: np.random.Generator, n: int, sd: float) -> Array:
    """Correlation 0.3 to 0.7 with the point before."""
    phi = rng.uniform(0.3, 0.7)
    x = rng.normal(0, sd, n)
    for i in range(1, n):
        x[i] = phi * x[i - 1] + x[i] * np.sqrt(1 - phi**2)
    return x


def _nothing(rng: np.random.Generator, n: int, sd: float) -> Array:
    """No noise: a count, or a size in bytes."""
    del rng, sd
    return np.zeros(n)


FAMILIES: dict[str, DrawNoise] = {
    "gauss": _gauss,
    "student3": _student3,
    "skew": _skew,
    "outliers": _outliers,
    "bimodal_iid": _bimodal,
    "bimodal_sticky": _sticky,
    "hetero": _hetero,
    "drift": _drift,
    "wander": _wander,
    "ar1": _ar1,
    "spikes": _spikes,
    "quantised": _gauss,
    "deterministic": _nothing,
}
"""Name to noise; ``quantised`` is Gaussian and then rounded."""


def _places(rng: np.random.Generator, n: int, count: int) -> list[int]:
    """Draw places of changes, at least `EDGE` points apart and from both ends."""
    while True:
        places = sorted(int(i) for i in rng.integers(EDGE, n - EDGE + 1, count))
        if all(b - a >= EDGE for a, b in pairwise(places)):
            return places


def _levels(rng: np.random.Generator, n: int, count: int) -> tuple[Array, list[int], list[float]]:
    """Draw a log level with steps: log values, places, relative sizes."""
    places = _places(rng, n, count)
    steps = [float(rng.choice(STEPS) * rng.choice((-1, 1))) for _ in places]
    x = np.full(n, np.log(10 ** rng.uniform(0.5, 2.5)))
    for place, step in zip(places, steps, strict=True):
        x[place:] += np.log1p(step)
    return x, places, steps


def _count(rng: np.random.Generator) -> int:
    """Draw how many changes a series has: none in 54 of 100."""
    return 0 if rng.random() < UNCHANGED else int(rng.integers(1, 4))


def _quantise(rng: np.random.Generator, x: Array, sd: float) -> Array:
    """Round to a grid of 0.5 to 2 deviations of the noise."""
    step = np.exp(np.median(x)) * sd * rng.uniform(0.5, 2)
    return np.asarray(np.log(np.maximum(np.round(np.exp(x) / step), 1) * step))


def synth(seed: int, each: int = 24) -> list[LabelledSeries]:
    """Make `each` series of every family."""
    made = []
    for number, (family, noise) in enumerate(FAMILIES.items()):
        rng = np.random.default_rng([seed, 1, number])
        for k in range(each):
            n, sd = int(rng.integers(30, 201)), float(rng.choice(DEVIATIONS))
            level, places, steps = _levels(rng, n, _count(rng))
            x = level + noise(rng, n, sd)
            if family == "quantised":
                x = _quantise(rng, x, sd)
            made.append(_planted(f"{family}-{k}", "synth", family, x, places, steps))
    return made


def mixed(seed: int, count: int = 240, n_max: int = 700) -> list[LabelledSeries]:
    """Make longer series, each with two or three kinds of noise at once.

    They stand for semi-synthetic histories, whose noise is real: heavy tails, modes and
    correlation together.
    """
    rng = np.random.default_rng([seed, 2])
    kinds = [name for name in FAMILIES if name not in {"quantised", "deterministic"}]
    made = []
    for k in range(count):
        n = int(np.exp(rng.uniform(np.log(60), np.log(n_max))))
        level, places, steps = _levels(rng, n, _count(rng))
        chosen = [str(name) for name in rng.choice(kinds, int(rng.integers(2, 4)), replace=False)]
        sd = float(np.exp(rng.uniform(np.log(0.003), np.log(0.03))))
        x = level + sum(FAMILIES[name](rng, n, sd * rng.uniform(0.3, 1)) for name in chosen)
        made.append(_planted(f"mixed-{k}", "mixed", "+".join(sorted(chosen)), x, places, steps))
    return made


def delay(seed: int, each: int = 5) -> list[LabelledSeries]:
    """Make series of 70 points with one step at 40, for online use."""
    kinds: dict[str, tuple[DrawNoise, float]] = {
        "gauss1": (_gauss, 0.01),
        "gauss2": (_gauss, 0.02),
        "student3": (_student3, 0.01),
        "skew": (_skew, 0.015),
        "bimodal": (_two_modes, 0.006),
    }
    made = []
    for number, (family, (noise, sd)) in enumerate(kinds.items()):
        rng = np.random.default_rng([seed, 3, number])
        for size in (0.03, 0.05, 0.1, 0.2):
            for k in range(each):
                step = float(size * rng.choice((-1, 1)))
                x = np.log(10) + noise(rng, 70, sd)
                x[40:] += np.log1p(step)
                made.append(_planted(f"{family}-{size}-{k}", "delay", family, x, [40], [step]))
    return made


def _two_modes(rng: np.random.Generator, n: int, sd: float) -> Array:
    """A quarter of the points is 4 % slower."""
    return np.asarray(rng.normal(0, sd, n) + rng.choice((0, 0.04), n, p=(0.75, 0.25)))


def ratio(seed: int, count: int = 400) -> list[LabelledSeries]:
    """Make speedups of 5 to 30 commits; their intervals leave out the spread between runs."""
    rng = np.random.default_rng([seed, 4])
    made = []
    for k in range(count):
        n = int(rng.choice((5, 8, 12, 20, 30)))
        tau, within = float(rng.choice((0.003, 0.01, 0.02))), float(rng.uniform(0.004, 0.012))
        se = within * np.exp(rng.normal(0, 0.4, n))
        wild = np.where(rng.random(n) < WILD, 5.0, 1.0)
        x = np.log(rng.uniform(0.8, 4)) + rng.normal(0, tau, n) * wild + rng.normal(0, 1, n) * se
        places, steps = [], []
        if rng.random() < HALF:
            places = [int(rng.integers(3, max(4, n - 1)))]
            steps = [float(rng.choice((0.03, 0.05, 0.1, 0.2)) * rng.choice((-1, 1)))]
            x[places[0] :] += np.log1p(steps[0])
        low, high = np.exp(x - 1.96 * se), np.exp(x + 1.96 * se)
        made.append(
            _planted(
                f"ratio-{k}", "ratio", f"n{n}", x, places, steps, list(zip(low, high, strict=True))
            )
        )
    return made


def _planted(  # noqa: PLR0917 - the fields of a series, in their order
    name: str,
    suite: str,
    family: str,
    x: Array,
    places: list[int],
    steps: list[float],
    intervals: list[tuple[float, float]] | None = None,
) -> LabelledSeries:
    """Turn log values with known changes into a series."""
    return LabelledSeries(
        name=name,
        suite=suite,
        family=family,
        values=tuple(float(value) for value in np.exp(x)),
        annotations={"truth": tuple(places)},
        steps=tuple(steps),
        intervals=tuple((float(a), float(b)) for a, b in intervals) if intervals else None,
    )
