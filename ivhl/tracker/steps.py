"""Where a case moved along PyTorch releases and Pythons, eager and compiled each by its own seconds.

A *step* lies between neighbours: two releases on the same Pythons, or two Pythons beside the same
releases. What all cells of a step share is estimated from all of them together, since one pair of
runs is noisy; what a single cell shows beyond that is a step of this cell alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ivhl.records.age import recorded_rank
from ivhl.tracker.changes import largest_significant, probability, tests_of
from ivhl.tracker.compat import python_key, release_key
from ivhl.tracker.entries import subject_of
from ivhl.tracker.metrics import RELEVANT
from ivhl.tracker.series import series_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.tracker.changes import Tested
    from ivhl.tracker.entries import Entry
    from ivhl.tracker.metrics import Metric
    from ivhl.tracker.spread import Spreads

StepAxis = Literal["torch", "python"]
SIDES: Final[tuple[Metric, ...]] = ("eager", "compiled")


class SubjectCase(NamedTuple):
    """One case on one machine, over all cells."""

    machine: str
    device: str
    workload: str
    workload_version: int
    size: str
    variant: str
    dtype: str
    existing: bool


class SideStep(NamedTuple):
    """What one side did at a step.

    Attributes:
        ratio: Seconds after over seconds before, at equal speed of the machine.
        low: With ``high``, the 95 % interval if all were run again.
        each: Python or release of each cell to its own ratio.
        moved: Whether the change is significant among all of the case, and relevant.
    """

    ratio: float
    low: float
    high: float
    each: Mapping[str, float]
    moved: bool

    @property
    def word(self) -> str:
        """What happened, as ``compiled`` or ``eager`` would be followed by it."""
        if not self.moved:
            if self.low <= 1 <= self.high:
                return "shows no change"
            return f"may have become {'slower' if self.ratio > 1 else 'faster'}"
        return "became slower" if self.ratio > 1 else "became faster"


class CourseStep(NamedTuple):
    """A place at which a side moved.

    Attributes:
        before: Release or Python before it.
        place: The next one that was measured.
        cells: The Pythons or releases on which it is seen.
    """

    along: StepAxis
    before: str
    place: str
    cells: tuple[str, ...]
    sides: Mapping[Metric, SideStep]

    @property
    def whose(self) -> str:
        """Which side moved and so whose doing it is, as a sentence without its full stop."""
        moved = [side for side in SIDES if side in self.sides and self.sides[side].moved]
        who = "PyTorch" if self.along == "torch" else "Python"
        if not moved:
            return "no change is shown"
        if len(moved) == len(SIDES):
            return f"both sides moved: {who}, in what eager and compiled code both run"
        name: Metric = "compiled" if moved == ["eager"] else "eager"
        other = self.sides.get(name)
        word = "not measured" if other is None else other.word
        if other is not None and not other.low <= 1 <= other.high:
            return f"{moved[0]} moved, {name} {word}: {who}, perhaps in what both run"
        if moved == ["eager"]:
            return f"eager moved, compiled: {word}; {who}, in what only eager code runs"
        if self.along == "torch":
            return f"compiled moved, eager: {word}; PyTorch's compiler"
        return f"compiled moved, eager: {word}; {who}, in what only compiled code runs"


class _Candidate(NamedTuple):
    """A place that is tested, with the tests of a side in each cell."""

    along: StepAxis
    before: str
    place: str
    tests: Mapping[str, Mapping[Metric, Tested]]


class _Pooled(NamedTuple):
    """The mean of several tests of one quantity."""

    apart: float
    reach: float
    p: float


def cases_of(entries: Iterable[Entry]) -> dict[SubjectCase, list[Entry]]:
    """Return the entries of each case, sorted by case."""
    groups: dict[SubjectCase, list[Entry]] = defaultdict(list)
    for entry in entries:
        case = entry.case
        subject = SubjectCase(
            case.machine, case.device, case.workload, case.workload_version, case.size,
            case.variant, entry.dtype, case.existing,
        )  # fmt: skip
        groups[subject].append(entry)
    return dict(sorted(groups.items()))


def of_one_code(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the newest run of each cell, of the code that ran in most cells, then the newest."""
    codes: dict[object, dict[tuple[str, str], Entry]] = defaultdict(dict)
    for entry in sorted(entries, key=recorded_rank):
        codes[subject_of(entry)][entry.python, entry.torch] = entry
    chosen = max(
        codes.values(), key=lambda cells: (len(cells), max(map(recorded_rank, cells.values())))
    )
    return tuple(chosen.values())


def find_steps(
    entries: Sequence[Entry], spreads: Spreads, *, every: bool = False
) -> tuple[CourseStep, ...]:
    """Return the steps of one case, along releases and then along Pythons.

    Cells that failed are passed over: a step then lies between the nearest that have seconds.

    Args:
        entries: Runs of one case on one machine (``of_one_code``).
        spreads: What runs of the same code differ by.
        every: Places at which nothing moved, too.
    """
    timed = [entry for entry in entries if entry.failure_class is None]
    found: list[_Candidate] = []
    for along in ("torch", "python"):
        found += _candidates(timed, along, spreads)
    # Of each place all cells together, and each by itself.
    judged = [(one, tuple(one.tests)) for one in found]
    judged += [(one, (cell,)) for one in found if len(one.tests) > 1 for cell in one.tests]
    limits = {
        side: largest_significant(
            [_pool(one, cells, side).p for one, cells in judged if _has(one, cells, side)] or [1.0]
        )
        for side in SIDES
    }
    steps = []
    for one in found:
        whole = _step(one, tuple(one.tests), limits)
        alone = [_step(one, (cell,), limits) for cell in one.tests if len(one.tests) > 1]
        moved = [step for step in alone if _moves(step)]
        if _moves(whole) and (_agree(one, whole) or not moved):
            steps.append(whole)
        elif moved:
            steps += moved
        elif every and whole.sides:
            steps.append(whole)
    return tuple(steps)


def _candidates(entries: Sequence[Entry], along: StepAxis, spreads: Spreads) -> list[_Candidate]:
    tests: dict[tuple[str, str], dict[str, Mapping[Metric, Tested]]] = defaultdict(dict)
    for series in series_of(entries, along):
        cell = series.case.python if along == "torch" else series.case.torch
        for segment in series.segments():
            for one, other in pairwise(segment):
                tests[one.name, other.name][cell] = tests_of(one.entry, other.entry, spreads)
    order = release_key if along == "torch" else python_key
    fixed = python_key if along == "torch" else release_key
    return [
        _Candidate(
            along, *ends, {cell: tests[ends][cell] for cell in sorted(tests[ends], key=fixed)}
        )
        for ends in sorted(tests, key=lambda ends: (order(ends[1]), order(ends[0])))
    ]


def _has(one: _Candidate, cells: Iterable[str], side: Metric) -> bool:
    return any(side in one.tests[cell] for cell in cells)


def _pool(one: _Candidate, cells: Iterable[str], side: Metric) -> _Pooled:
    """Return the mean over cells, whose runs are independent of each other."""
    tests = [one.tests[cell][side] for cell in cells if side in one.tests[cell]]
    apart = fmean(test.apart for test in tests)
    scale = math.hypot(*(test.scale for test in tests)) / len(tests)
    spread = tests[0].spread
    reach = spread.scores.another_95 * scale
    return _Pooled(apart, reach, probability(apart, scale, spread))


def _step(one: _Candidate, cells: tuple[str, ...], limits: Mapping[Metric, float]) -> CourseStep:
    sides: dict[Metric, SideStep] = {}
    for side in SIDES:
        if not _has(one, cells, side):
            continue
        pooled = _pool(one, cells, side)
        factor = math.exp(abs(pooled.apart))
        sides[side] = SideStep(
            ratio=math.exp(pooled.apart),
            low=math.exp(pooled.apart - pooled.reach),
            high=math.exp(pooled.apart + pooled.reach),
            each={
                cell: math.exp(one.tests[cell][side].apart)
                for cell in cells
                if side in one.tests[cell]
            },
            moved=pooled.p <= limits[side] and factor >= RELEVANT[side],
        )
    return CourseStep(one.along, one.before, one.place, cells, sides)


def _agree(one: _Candidate, whole: CourseStep) -> bool:
    """Return whether no cell is further from what all share than runs of the same code are."""
    return all(
        abs(test.apart - math.log(whole.sides[side].ratio))
        <= test.spread.scores.verdict * test.scale
        for tests in one.tests.values()
        for side, test in tests.items()
        if side in whole.sides
    )


def _moves(step: CourseStep) -> bool:
    return any(side.moved for side in step.sides.values())
