"""Find where a case changed along releases and Pythons: speedup, eager and compiled seconds.

A *step* lies between neighbours: two releases on the same Pythons, or two Pythons beside the same
releases. What all cells of a step share is estimated from all of them together, since one pair of
runs is noisy. Where the cells do not agree, those that moved alike share a step, and what a single
cell shows is a step of this cell alone.

Lasting changes of seconds (``levels_of``) are those that no two neighbouring places show. Two runs
are too noisy for a change by 1.3x on many machines. All runs before and after a place know it
better, and a detector says where it is (``changepoints``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ivhl.records.age import recorded_rank
from ivhl.tracker.changes.compare import session_reach
from ivhl.tracker.changes.kinds import (
    FALSE_ALARMS,
    Tested,
    largest_significant,
    probability,
    tests_of,
)
from ivhl.tracker.changes.regressions import ALONG_WORDS, ENOUGH_POINTS, with_intervals
from ivhl.tracker.changes.series import Point, runs_of_one_code, series_of
from ivhl.tracker.detection.changepoints import Searched, detect_all
from ivhl.tracker.store.metrics import MEDIAN_ERROR, RELEVANT, SIDES, Metric, difference, within
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.wording import times

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ivhl.records.identity import CaseInCell
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.spread import Spreads


StepAxis = Literal["torch", "python"]
# Of the speedup, what disturbs both sides falls out, so it shows what neither side shows alone.
QUANTITIES: Final[tuple[Metric, ...]] = (*SIDES, "speedup")


# Of runs that repeat to the last digit, so that each has a weight.
_LEAST_VARIANCE: Final = 1e-12


class QuantityStep(NamedTuple):
    """What the seconds of a side, or the speedup, did at a step.

    Attributes:
        metric: ``eager``, ``compiled`` or ``speedup``.
        ratio: After over before; seconds at equal speed of the machine.
        low: With ``high``, the 95 % interval if all were run again.
        each: Python or release of each cell to its own ratio.
        moved: Whether the change is significant among all of the case, and relevant.
    """

    metric: Metric
    ratio: float
    low: float
    high: float
    each: Mapping[str, float]
    moved: bool

    @property
    def may_be_none(self) -> bool:
        """Whether no change is in the interval."""
        return self.low <= 1 <= self.high

    @property
    def is_none(self) -> bool:
        """Whether no relevant change is in the interval."""
        relevant = RELEVANT[self.metric]
        return 1 / relevant <= self.low and self.high <= relevant

    @property
    def word(self) -> str:
        """What happened, as the name of the quantity would be followed by it."""
        is_up = self.ratio > 1
        if self.metric == "speedup":
            became, may = ("rose", "rise") if is_up else ("fell", "fall")
        else:
            became = may = "became slower" if is_up else "became faster"
            may = may.replace("became", "become")
        if self.moved:
            return became
        if self.is_none:
            return "shows no change"
        if self.may_be_none:
            return "is too noisy to say"
        return f"may have {_PARTICIPLES.get(may, may)}"

    @property
    def size(self) -> str:
        """By how much it moved, e.g. ``1.20x [1.10, 1.31]``."""
        return f"{times(self.ratio)} [{self.low:.2f}, {self.high:.2f}]"

    def __str__(self) -> str:
        """Return e.g. ``compiled became slower: 1.20x [1.10, 1.31]``."""
        return f"{self.metric} {self.word}: {self.size}"


_PARTICIPLES: Final = {"rise": "risen", "fall": "fallen"}


class CourseStep(NamedTuple):
    """A place at which a side moved.

    Attributes:
        before: Release or Python before it.
        place: The next one that was measured.
        cells: The Pythons or releases on which it is seen.
        is_alone: Whether other cells of this place do not show it.
        lasts: Whether the run before both and the run after both bear it out: no single run that was
            disturbed makes a step that does.
        of_levels: Whether all runs before and behind it show it, where no two neighbours do.
    """

    along: StepAxis
    before: str
    place: str
    cells: tuple[str, ...]
    sides: Mapping[Metric, QuantityStep]
    is_alone: bool = False
    lasts: bool = False
    of_levels: bool = False

    def title(self, arrow: str) -> str:
        """Return e.g. ``PyTorch 2.5.1 -> 2.6.0, on Python 3.12, 3.13``."""
        on = ALONG_WORDS["python" if self.along == "torch" else "torch"]
        ends = f"{ALONG_WORDS[self.along]} {self.before} {arrow} {self.place}"
        return f"{ends}, on {on} {', '.join(self.cells)}"

    @property
    def may_be_disturbed(self) -> bool:
        """Whether a single disturbed run may be all of it."""
        return self.is_alone and not self.lasts

    @property
    def whose(self) -> str:
        """Which side moved and so whose doing it is, as a sentence without its full stop."""
        if self.may_be_disturbed:
            return f"{self._whose}; in this cell alone, so perhaps what disturbed one of its runs"
        if self.of_levels:
            return f"{self._whose}; by all runs before and after it, as no two neighbours show it"
        if self.is_alone:
            return f"{self._whose}; in this cell alone, and the runs before and after it agree"
        return self._whose

    @property
    def _whose(self) -> str:  # noqa: PLR0911  (one for each answer)
        moved = [side for side in SIDES if side in self.sides and self.sides[side].moved]
        who = "PyTorch" if self.along == "torch" else "Python"
        speedup = self.sides.get("speedup")
        has_parted = speedup is not None and speedup.moved  # one side from the other
        if not moved:
            if speedup is None or not has_parted:
                return "no change is shown"
            return f"the speedup {speedup.word}: {who}; {self._likely}"
        if len(moved) == len(SIDES):
            return f"both sides moved: {who}, in what eager and compiled code both run"
        name: Metric = "compiled" if moved == ["eager"] else "eager"
        other = self.sides.get(name)
        if other is None:
            return f"{moved[0]} moved, {name} was not measured: {who}"
        if not other.may_be_none:
            return f"{moved[0]} moved, {name} {other.word}: {who}, perhaps in what both run"
        where = "PyTorch's compiler" if (who, name) == ("PyTorch", "eager") else who
        if where == who:
            where += f", in what only {moved[0]} code runs"
        if other.is_none:
            return f"{moved[0]} moved, {name} did not: {where}"
        if has_parted:
            return (
                f"{moved[0]} moved, and by more than {name}, which is too noisy to rule a change "
                f"out: {where}, at least in part"
            )
        return f"{moved[0]} moved; {name} is too noisy to say whether it did, too: {who}"

    @property
    def _likely(self) -> str:
        """Which side may have moved the speedup."""
        may = [side for side in SIDES if side in self.sides and not self.sides[side].may_be_none]
        if len(may) == 1:
            return f"{may[0]} {self.sides[may[0]].word}"
        return "the seconds are too noisy to say by which side"


class _Candidate(NamedTuple):
    """A place that is tested, with the tests of a side in each cell.

    Attributes:
        sessions: Cells whose two runs are of different days.
        around: The tests of the same step with the run before both ends in place of the first, and
            with the run after them in place of the second, of cells that have these runs.
    """

    along: StepAxis
    before: str
    place: str
    tests: Mapping[str, Mapping[Metric, Tested]]
    sessions: frozenset[str]
    around: Mapping[str, Sequence[Mapping[Metric, Tested]]]


class _Pooled(NamedTuple):
    """The mean of several tests of one quantity."""

    apart: float
    reach: float
    p: float


def cases_of(entries: Iterable[Entry]) -> dict[tuple[CaseInCell, str], list[Entry]]:
    """Return the entries of each case in each dtype, over all cells of a machine, sorted by case."""
    groups = grouped_by(entries, lambda entry: (entry.case.over_cells, entry.dtype))
    return dict(sorted(groups.items()))


def of_one_code(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the newest run of each cell, of the code that ran in most cells, then the newest."""
    ordered = sorted(entries, key=recorded_rank)
    return tuple(runs_of_one_code(ordered, lambda run: (run.python, run.torch)).values())


def ends_of(step: CourseStep, runs: Iterable[Entry]) -> tuple[Entry, Entry]:
    """Return the runs before and after a step, in its first cell."""
    by_cell = {(run.python, run.torch): run for run in runs}
    cell = step.cells[0]
    if step.along == "python":
        return by_cell[step.before, cell], by_cell[step.place, cell]
    return by_cell[cell, step.before], by_cell[cell, step.place]


def find_steps(
    entries: Sequence[Entry],
    spreads: Spreads,
    *,
    every: bool = False,
    disturbed: Collection[int] = frozenset(),
) -> tuple[CourseStep, ...]:
    """Return the steps of one case, along releases and then along Pythons.

    Cells that failed are passed over: a step then lies between the nearest that have seconds.

    Args:
        entries: Runs of one case on one machine (``of_one_code``).
        spreads: What runs of the same code differ by.
        every: Places at which nothing moved, too.
        disturbed: Ids of entries that are passed over, too (``disturbed_of``).
    """
    timed = [entry for entry in entries if "speedup" in entry.values]
    found = _candidates(timed, "torch", spreads, disturbed)
    found += _candidates(timed, "python", spreads, disturbed)
    # All cells of each place together, and each by itself: two questions, of which the second has
    # many more tests.
    limits = _limits((one, tuple(one.tests)) for one in found)
    limits_alone = _limits(
        (one, (cell,)) for one in found if len(one.tests) > 1 for cell in one.tests
    )
    steps = []
    for one in found:
        whole = _step(one, tuple(one.tests), limits)
        alone = [_step(one, (cell,), limits_alone) for cell in one.tests if len(one.tests) > 1]
        moved = [step for step in alone if _moves(step)]
        if _moves(whole) and (_agree(one, whole) or not moved):
            steps.append(whole)
        elif moved:
            steps += _apart(one, moved, limits_alone)
        elif every and whole.sides:
            steps.append(whole)
    return (*steps, *_one_each(_of_levels(timed, spreads, disturbed, steps)))


def _of_levels(
    entries: Sequence[Entry],
    spreads: Spreads,
    disturbed: Collection[int],
    known: Sequence[CourseStep],
) -> Iterator[tuple[CourseStep, Sequence[str]]]:
    """Yield the steps along releases that only all runs before and behind them show.

    With each, the releases from the change of level before to the one behind it.

    Where neighbours show that the side moved, by then or from then on, that is the change of level.
    """
    cells: dict[str, list[Point]] = {}
    for series in series_of(entries, "torch"):
        longest = max(series.segments(), key=len)
        cells[series.case.python] = [p for p in longest if p.entry.id not in disturbed]
    limits = dict.fromkeys(SIDES, FALSE_ALARMS)
    for level in levels_of(cells, spreads):
        tests = {
            cell: {
                side: test
                for side, test in level.tests[cell].items()
                if not any(_explains(step, cell, side, level.around) for step in known)
            }
            for cell in sorted(level.tests, key=python_key)
        }
        tests = {cell: sides for cell, sides in tests.items() if sides}
        one = _Candidate("torch", level.before, level.place, tests, level.sessions, {})
        steps = [_step(one, (cell,), limits) for cell in tests]
        moved = [step for step in steps if _moves(step)]
        whole = _step(one, tuple(tests), limits)
        if tests and _moves(whole) and _agree(one, whole):
            moved = [whole]
        yield from ((step._replace(of_levels=True), level.around) for step in moved)


def _one_each(found: Iterable[tuple[CourseStep, Sequence[str]]]) -> list[CourseStep]:
    """Return the steps without those that are others again, in which a cell is a release off."""
    kept: list[tuple[CourseStep, Sequence[str]]] = []
    for step, around in sorted(found, key=lambda one: _clearness(one[0]), reverse=True):
        if not any(
            _directions(step) & _directions(other)
            and (step.place in at[1:] or other.place in around[1:])
            for other, at in kept
        ):
            kept.append((step, around))
    return sorted((step for step, _ in kept), key=lambda step: release_key(step.place))


def _clearness(step: CourseStep) -> float:
    """Return the largest change of a side, in widths of its interval."""
    return max(
        abs(math.log(one.ratio)) / (math.log(one.high / one.low) or _LEAST_VARIANCE)
        for one in step.sides.values()
        if one.moved
    )


def _explains(step: CourseStep, cell: str, side: Metric, around: Sequence[str]) -> bool:
    """Return whether neighbours show in a cell that a side moved at one of these releases."""
    found = step.sides.get(side)
    return (
        (step.along, step.place in around[1:], cell in step.cells) == ("torch", True, True)
        and found is not None
        and found.moved
    )


def _apart(
    one: _Candidate, moved: Sequence[CourseStep], limits: Mapping[Metric, float]
) -> list[CourseStep]:
    """Return the steps of cells that do not agree with all others.

    Cells that moved in the same direction are no accident of one run. They share a step if they
    moved by the same factor, too.
    """
    steps = []
    for group in grouped_by(moved, _directions).values():
        shared = _step(one, tuple(cell for step in group for cell in step.cells), limits)
        if len(group) > 1 and _moves(shared) and _agree(one, shared):
            steps.append(shared)
            continue
        for step in group:
            others = (_directions(other) for other in moved if other is not step)
            steps.append(
                step._replace(
                    is_alone=not any(_directions(step) & other for other in others),
                    lasts=_lasts(step, one.around.get(step.cells[0], ())),
                )
            )
    return steps


def _directions(step: CourseStep) -> frozenset[tuple[Metric, bool]]:
    """Return what moved, and whether up."""
    return frozenset((side, found.ratio > 1) for side, found in step.sides.items() if found.moved)


def _lasts(step: CourseStep, around: Sequence[Mapping[Metric, Tested]]) -> bool:
    """Return whether a step of one cell is seen without either of its runs, too."""
    return bool(around) and any(
        all(
            side in tests
            and (tests[side].apart > 0) == is_up
            and tests[side].p <= FALSE_ALARMS
            and math.exp(abs(tests[side].apart)) >= RELEVANT[side]
            for tests in around
        )
        for side, is_up in _directions(step)
    )


def _limits(judged: Iterable[tuple[_Candidate, tuple[str, ...]]]) -> dict[Metric, float]:
    """Return for each quantity the largest probability that is significant among these tests."""
    asked = tuple(judged)
    return {
        metric: largest_significant(
            [_pool(one, cells, metric).p for one, cells in asked if _has(one, cells, metric)]
        )
        for metric in QUANTITIES
    }


def _candidates(
    entries: Sequence[Entry], along: StepAxis, spreads: Spreads, disturbed: Collection[int]
) -> list[_Candidate]:
    """Return the places that are tested.

    Over a disturbed run a cell is tested from one of its neighbours to the other, but not where
    other cells show the places between.
    """
    tests: dict[tuple[str, str], dict[str, Mapping[Metric, Tested]]] = defaultdict(dict)
    sessions: dict[tuple[str, str], set[str]] = defaultdict(set)
    around: dict[tuple[str, str], dict[str, list[Mapping[Metric, Tested]]]] = defaultdict(dict)
    over: dict[tuple[str, str], set[str]] = defaultdict(set)
    for series in series_of(entries, along):
        cell = series.case.python if along == "torch" else series.case.torch
        for segment in series.segments():
            quiet = [i for i, point in enumerate(segment) if point.entry.id not in disturbed]
            for n, (i, j) in enumerate(pairwise(quiet)):
                one, other = segment[i], segment[j]
                ends = one.name, other.name
                over[ends].update(point.name for point in segment[i + 1 : j])
                tests[ends][cell] = tests_of(one.entry, other.entry, spreads)
                if 0 < n < len(quiet) - 2:
                    earlier, later = segment[quiet[n - 1]].entry, segment[quiet[n + 2]].entry
                    pairs = (earlier, other.entry), (one.entry, later)
                    around[ends][cell] = [tests_of(*pair, spreads) for pair in pairs]
                if day_of(one.entry) != day_of(other.entry):
                    sessions[ends].add(cell)
    shown = {place for (_, place), between in over.items() if not between}
    order = release_key if along == "torch" else python_key
    fixed = python_key if along == "torch" else release_key
    return [
        _Candidate(
            along,
            *ends,
            {cell: tests[ends][cell] for cell in sorted(tests[ends], key=fixed)},
            frozenset(sessions[ends]),
            around[ends],
        )
        for ends in sorted(tests, key=lambda ends: (order(ends[1]), order(ends[0])))
        if not over[ends] or not over[ends] <= shown
    ]


def _has(one: _Candidate, cells: Iterable[str], side: Metric) -> bool:
    return any(side in one.tests[cell] for cell in cells)


def _pool(one: _Candidate, cells: Iterable[str], side: Metric) -> _Pooled:
    """Return the mean over cells, in which a cell counts the less the noisier its runs are.

    Their runs are independent of each other, but for what the session moves all of them by. That
    is a part of what runs differ by, and no mean makes it smaller.
    """
    asked = [cell for cell in cells if side in one.tests[cell]]
    tests = [one.tests[cell][side] for cell in asked]
    spread = tests[0].spread
    reaches = [spread.scores.another_95 * test.scale for test in tests]
    common = session_reach(side) if one.sessions.intersection(asked) else 0.0
    variances = [max(reach**2 - common**2, _LEAST_VARIANCE) for reach in reaches]
    total = sum(1 / variance for variance in variances)
    apart = sum(t.apart / v for t, v in zip(tests, variances, strict=True)) / total
    reach = math.hypot(math.sqrt(1 / total), common)
    scale = reach / spread.scores.another_95 if spread.scores.another_95 else 0.0
    return _Pooled(apart, reach, probability(apart, scale, spread))


def day_of(entry: Entry) -> str:
    """Return the day of a run: those of two days are of two sessions."""
    return entry.recorded_at[:10]


def _step(one: _Candidate, cells: tuple[str, ...], limits: Mapping[Metric, float]) -> CourseStep:
    sides: dict[Metric, QuantityStep] = {}
    for side in reversed(QUANTITIES):
        if not _has(one, cells, side):
            continue
        pooled = _pool(one, cells, side)
        limit = limits[side]
        if "speedup" in sides and sides["speedup"].moved:
            # Then one of the sides did, and which one is asked of this place alone.
            limit = max(limit, FALSE_ALARMS)
        factor = math.exp(abs(pooled.apart))
        sides[side] = QuantityStep(
            metric=side,
            ratio=math.exp(pooled.apart),
            low=math.exp(pooled.apart - pooled.reach),
            high=math.exp(pooled.apart + pooled.reach),
            each={
                cell: math.exp(one.tests[cell][side].apart)
                for cell in cells
                if side in one.tests[cell]
            },
            moved=pooled.p <= limit and factor >= RELEVANT[side],
        )
    return CourseStep(one.along, one.before, one.place, cells, sides)


def _agree(one: _Candidate, whole: CourseStep) -> bool:
    """Return whether no cell is further from what all share than runs of the same code are."""
    return all(
        abs(test.apart - math.log(whole.sides[side].ratio))
        <= test.spread.scores.verdict * test.scale
        for cell in whole.cells
        for side, test in one.tests[cell].items()
        if side in whole.sides
    )


def _moves(step: CourseStep) -> bool:
    return any(side.moved for side in step.sides.values())


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
        if {*map(day_of, was)} != {*map(day_of, now)}:
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
