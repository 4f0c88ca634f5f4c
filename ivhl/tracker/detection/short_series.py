"""Steps in a series of few points, each with an interval: a Bayesian model of levels.

An interval covers what varies within a run, not what varies between runs: point-to-point scatter
is 1.6 to 4.3 times as wide in 13,000 asv series. So the spread between runs is unknown, and summed
over.
"""

import math

import numpy as np

from ivhl.tracker.detection.levels import Array

JUMP_RATE = 1 / 30  # steps per point
JUMP_SIZE = 0.12  # mean size of a step, in log units; Laplace
FAR = 1e-9  # relative weight of steps of any size
WILD = 0.06  # share of points that deviate `WILD_WIDTH` times as much
WILD_WIDTH = 5.0
RELEVANT = 0.02  # log units: smaller steps do not count
REPORT = 0.65  # probability
# Standard deviation between runs, in log units: log-normal around 1 %, by a factor of 2.2
BETWEEN = np.exp(np.linspace(math.log(0.0015), math.log(0.12), 14))
BETWEEN_MEDIAN = 0.010
BETWEEN_WIDTH = 0.8
CELL = 0.004  # log units between levels
MOST_CELLS = 240


def steps_of_few(x: Array, se: Array) -> list[int]:
    """Return the first point of each new level.

    A step is reported where the probability of a relevant one, at this point or a neighbour, is at
    least `REPORT`.

    Args:
        x: Logarithms, shape ``[n]``.
        se: Standard error of each within its run, shape ``[n]``, in the same unit.
    """
    n = len(x)
    p = posterior(x, se)
    places: list[int] = []
    while n > 3:  # noqa: PLR2004 - two points on each side
        near = np.convolve(p, np.ones(3), mode="same")
        middle = int(np.argmax(near))
        if near[middle] < REPORT:
            break
        low = max(0, middle - 1)
        place = low + int(np.argmax(p[low : middle + 2]))
        if 1 < place < n - 1:
            places.append(place)
        p[max(0, middle - 1) : middle + 2] = 0
    return sorted(places)


def posterior(x: Array, se: Array) -> Array:
    """Return the probability of a relevant step at each point, shape ``[n]``; 0 at the first.

    Args:
        x: Logarithms, shape ``[n]``.
        se: Standard error of each within its run, shape ``[n]``.

    Source:
        Chib, Estimation and comparison of multiple change-point models, J. Econometrics 86 (1998);
        forward-backward on a grid of levels, for each spread between runs.
    """
    n = len(x)
    low, high = float(np.min(x)) - 0.01, float(np.max(x)) + 0.01
    levels = np.linspace(low, high, int(np.clip((high - low) / CELL, 60, MOST_CELLS)))
    distance = np.abs(levels[:, None] - levels)
    jump = np.exp(-distance / JUMP_SIZE) + FAR
    jump /= jump.sum(axis=1, keepdims=True)
    # Between two levels no point may be out of reach.
    likelihood = _likelihood(x, np.hypot(se, (levels[1] - levels[0]) / 4), levels)
    forward, scale = _forward(likelihood, jump)
    prior = -((np.log(BETWEEN / BETWEEN_MEDIAN) / BETWEEN_WIDTH) ** 2) / 2
    weight = np.log(scale).sum(axis=0) + prior
    weight = np.exp(weight - np.max(weight))
    weight /= weight.sum()
    relevant = np.where(distance > RELEVANT, jump, 0)
    backward = np.ones(likelihood.shape[1:])
    p = np.zeros(n)
    for t in range(n - 1, 0, -1):
        after = likelihood[t] * backward / scale[t][:, None]
        p[t] = JUMP_RATE * weight @ ((forward[t - 1] @ relevant) * after).sum(axis=1)
        backward = (1 - JUMP_RATE) * after + JUMP_RATE * (after @ jump.T)
    return p


def _likelihood(x: Array, se: Array, levels: Array) -> Array:
    """Return the density of each point, shape ``[n, spreads, levels]``."""
    sd = np.sqrt(se[:, None] ** 2 + BETWEEN**2)[:, :, None]
    z = ((x[:, None] - levels)[:, None, :] / sd) ** 2
    usual = (1 - WILD) * np.exp(-z / 2)
    wild = WILD / WILD_WIDTH * np.exp(-z / (2 * WILD_WIDTH**2))
    return np.asarray((usual + wild) / sd + 1e-300)


def _forward(likelihood: Array, jump: Array) -> tuple[Array, Array]:
    """Return filtered probabilities ``[n, spreads, levels]`` and evidence ``[n, spreads]``."""
    n, spreads, count = likelihood.shape
    forward, scale = np.zeros_like(likelihood), np.zeros((n, spreads))
    before = np.full((spreads, count), 1 / count)
    for t in range(n):
        if t:
            before = (1 - JUMP_RATE) * forward[t - 1] + JUMP_RATE * (forward[t - 1] @ jump)
        joint = before * likelihood[t]
        scale[t] = joint.sum(axis=1)
        forward[t] = joint / scale[t][:, None]
    return forward, scale
