"""How close reported changes are to the true ones.

Definitions follow ``detection/score.py`` of the shared folder, so that figures can be compared;
the covering of several annotators is that of van den Burg and Williams, arXiv:2003.06222.
"""

import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .series import LabelledSeries

__all__ = ["Counts", "Detector", "annotated", "cpu_seconds", "online", "planted", "unchanged"]

Detector = Callable[[Sequence[float], Sequence[tuple[float, float]] | None], list[int]]

FIRST_PREFIX = 20  # online: the shortest prefix that is given to the detector
NEAR = 2  # points
LATE = 31  # points: counted for a step that was not found


@dataclass(frozen=True, slots=True)
class Counts:
    """What was reported, what of it is right, and what there was to find."""

    right: int = 0
    reported: int = 0
    true: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.right + other.right, self.reported + other.reported, self.true + other.true
        )

    @property
    def precision(self) -> float:
        """Return the share of reported changes that are right; 1 where none was reported."""
        return self.right / self.reported if self.reported else 1.0

    @property
    def recall(self) -> float:
        """Return the share of true changes that were reported; 1 where there is none."""
        return self.right / self.true if self.true else 1.0

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def matched(true: Iterable[int], reported: Iterable[int], margin: int) -> set[int]:
    """Return the true indices that have a reported one of their own within `margin`."""
    left, found = set(reported), set()
    for index in sorted(set(true)):
        near = [other for other in left if abs(other - index) <= margin]
        if near:
            left.remove(min(near, key=lambda other: (abs(other - index), other)))
            found.add(index)
    return found


def planted(
    results: Iterable[tuple[LabelledSeries, Collection[int]]], margin: int = NEAR
) -> Counts:
    """Count over all series what was planted and found."""
    total = Counts()
    for series, found in results:
        right = len(matched(series.truth, found, margin))
        total += Counts(right, len(found), len(series.truth))
    return total


def annotated(results: Collection[tuple[LabelledSeries, Collection[int]]]) -> tuple[float, float]:
    """Return F1 as TCPD defines it, mean over series, and F1 pooled without index 0."""
    each, right, reported, hit, true = [], 0, 0, 0, 0
    for series, found in results:
        people = [set(one) | {0} for one in series.annotations.values()]
        mine = set(found) | {0}
        precision = len(matched(set().union(*people), mine, 5)) / len(mine)
        recall = statistics.mean(len(matched(one, mine, 5)) / len(one) for one in people)
        each.append(2 * precision * recall / (precision + recall))
        right += len(matched(series.truth, found, 5))
        reported += len(found)
        for one in series.annotations.values():
            hit += len(matched(one, found, 5))
            true += len(one)
    p, r = right / reported if reported else 0.0, hit / max(1, true)
    return statistics.mean(each), 2 * p * r / (p + r) if p + r else 0.0


def unchanged(
    results: Iterable[tuple[LabelledSeries, Collection[int]]],
) -> tuple[int, int, int, int]:
    """Count on series without a change: reported, points, series with a report, series."""
    quiet = [(series, found) for series, found in results if not series.truth]
    return (
        sum(len(found) for _, found in quiet),
        sum(len(series.values) for series, _ in quiet),
        sum(bool(found) for _, found in quiet),
        len(quiet),
    )


def online(series: LabelledSeries, detect: Detector) -> tuple[int, int, int]:
    """Append the points of a series with one step one by one.

    Returns:
        Points of the new regime that were there when the step was reported for good (`LATE` if it
        never was), distinct wrong reports, and prefixes given to the detector.
    """
    step, n = series.truth[0], len(series.values)
    seen: dict[int, bool] = {}
    wrong: list[int] = []
    for length in range(FIRST_PREFIX, n + 1):
        intervals = series.intervals and series.intervals[:length]
        found = detect(series.values[:length], intervals)
        seen[length] = any(abs(index - step) <= NEAR for index in found)
        for index in found:
            early = length <= step or abs(index - step) > NEAR
            if early and all(abs(index - other) > NEAR for other in wrong):
                wrong.append(index)
    delay = LATE
    for length in range(n, step, -1):
        if not seen[length]:
            break
        delay = length - step
    return delay, len(wrong), len(seen)


def cpu_seconds(
    detect: Detector, lengths: Iterable[int] = (100, 1000, 10_000)
) -> Mapping[int, float]:
    """Return length to CPU seconds of one call, on 1 % noise with steps of 5 and 10 %."""
    taken = {}
    for n in lengths:
        rng = np.random.default_rng(n)
        x = rng.normal(np.log(100), 0.01, n)
        for place in range(max(50, n // 20), n, max(50, n // 20)):
            x[place:] += np.log(rng.choice((0.9, 0.95, 1.05, 1.1)))
        values = [float(value) for value in np.exp(x)]
        start = time.process_time()
        detect(values, None)
        taken[n] = time.process_time() - start
    return taken
