"""Find lasting changes of seconds that no two neighbouring places show.

Two runs are too noisy for a change by 1.3x on many machines. All runs before and after a place know
it better, and a detector says where it is (``changepoints``).
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.tracker.changes.kinds import Tested, probability
from ivhl.tracker.changes.regressions import ENOUGH_POINTS, with_intervals
from ivhl.tracker.detection.changepoints import detect_all
from ivhl.tracker.store.metrics import MEDIAN_ERROR, RELEVANT, SIDES, difference, within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ivhl.tracker.changes.series import Point
    from ivhl.tracker.detection.changepoints import Searched
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.metrics import Metric
    from ivhl.tracker.store.spread import Spreads

_FEW: Final = 3  # of fewer values, the median is the mean


class LevelChange(NamedTuple):
    """A place at which a detector sees the seconds of a side change their level.

    Attributes:
        before: Name of the last point before it.
        place: Name of the first point behind it.
        around: The names of the points from the change before to the one behind it.
        tests: Cell to the test of each side: all its runs before the place against all behind it.
        sessions: Cells whose runs before and behind it are of other days.
    """

    before: str
    place: str
    around: tuple[str, ...]
    tests: Mapping[str, Mapping[Metric, Tested]]
    sessions: frozenset[str]


def levels_of(cells: Mapping[str, Sequence[Point]], spreads: Spreads) -> list[LevelChange]:
    """Return the places at which any cell changes its level, in no order.

    Args:
        cells: Cell to its points in order, without disturbed ones, all of which can be compared.
        spreads: What runs of the same code differ by.
    """
    long = {
        cell: points
        for cell, points in cells.items()
        if len(points) >= ENOUGH_POINTS and _has_one_yardstick(points)
    }
    searches = [(cell, side) for cell in long for side in SIDES]
    found = detect_all([_searched(long[cell], side) for cell, side in searches])
    levels: dict[tuple[str, str], LevelChange] = {}
    for (cell, side), places in zip(searches, found, strict=True):
        points = long[cell]
        for left, place, right in zip(
            [0, *places], places, [*places[1:], len(points)], strict=False
        ):
            ends = points[place - 1].name, points[place].name
            if ends not in levels and _is_borne_out(points[left:place], points[place:right], side):
                around = tuple(point.name for point in points[left:right])
                levels[ends] = _level(ends, around, place - left, long, spreads)
    return list(levels.values())


def _has_one_yardstick(points: Sequence[Point]) -> bool:
    """Return whether the machine itself is taken out of all seconds, and all points have them."""
    speeds = [point.entry.calibration for point in points]
    return len({speed and speed.yardstick for speed in speeds}) == 1 and all(
        speed and point.entry.values.keys() >= set(SIDES)
        for speed, point in zip(speeds, points, strict=True)
    )


def _level(
    ends: tuple[str, str],
    around: tuple[str, ...],
    n_before: int,
    cells: Mapping[str, Sequence[Point]],
    spreads: Spreads,
) -> LevelChange:
    names = set(around[:n_before]), set(around[n_before:])
    tests: dict[str, Mapping[Metric, Tested]] = {}
    sessions = set()
    for cell, points in cells.items():
        if not set(ends) <= {point.name for point in points}:
            continue
        was, now = ([p.entry for p in points if p.name in side] for side in names)
        tests[cell] = {side: _test(was, now, side, spreads) for side in SIDES}
        days = ({entry.recorded_at[:10] for entry in part} for part in (was, now))
        if len(set(map(frozenset, days))) > 1:
            sessions.add(cell)
    return LevelChange(*ends, around, tests, frozenset(sessions))


def _test(was: Sequence[Entry], now: Sequence[Entry], side: Metric, spreads: Spreads) -> Tested:
    """Return the test of the median of some runs against that of others, as of two runs."""
    first = was[0]
    before, after = ([difference(first, run, side) or 0.0 for run in part] for part in (was, now))
    apart = median(after) - median(before)
    spread = spreads.of(now[-1], side, calibrated=True)
    # ``scale`` is that of the difference of two such runs.
    single = median(spread.scale(run, metric=side) for run in (*was, *now)) / math.sqrt(2)
    scale = single * math.hypot(*(_error(len(part)) for part in (was, now)))
    return Tested(
        before=median(run.values[side].value for run in was),
        after=median(run.values[side].value for run in now),
        apart=apart,
        scale=scale,
        spread=spread,
        calibrated=True,
        p=probability(apart, scale, spread),
    )


def _error(n: int) -> float:
    """Return the standard error of the median of so many values, in that of one."""
    return (MEDIAN_ERROR if n >= _FEW else 1.0) / math.sqrt(n)


def _searched(points: Sequence[Point], side: Metric) -> Searched:
    first = points[0].entry
    values = [math.exp(difference(first, point.entry, side) or 0.0) for point in points]
    return with_intervals(values, [within(point.entry, side) for point in points])


def _is_borne_out(was: Sequence[Point], now: Sequence[Point], side: Metric) -> bool:
    """Return whether the seconds as measured moved likewise: the calibration alone makes no step."""
    first = was[0].entry

    def moved(value: Callable[[Entry], float]) -> float:
        before, after = (median(value(point.entry) for point in part) for part in (was, now))
        return math.log(after / before)

    equal = moved(lambda entry: math.exp(difference(first, entry, side) or 0.0))
    measured = moved(lambda entry: entry.values[side].value)
    return equal * measured > 0 and min(abs(equal), abs(measured)) >= math.log(RELEVANT[side])
