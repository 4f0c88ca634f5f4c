"""Every change in the stored history that a person should know, newest first.

Each series is searched for changes of status and of facts, which have no noise, and for steps in
time. Changes of many cases at one place are one incident.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from ivhl.tracker.changepoints import detect
from ivhl.tracker.changes import judge_changes
from ivhl.tracker.metrics import RELEVANT, measured
from ivhl.tracker.series import ALONG, series_of
from ivhl.tracker.wording import short_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ivhl.records.record import Failure, RunRecord
    from ivhl.tracker.changes import CaseChange
    from ivhl.tracker.compare import Case
    from ivhl.tracker.series import Along, Point, Series
    from ivhl.tracker.spread import Spreads

Kind = Literal["fails", "degraded", "slower", "faster", "mended"]
KINDS: tuple[Kind, ...] = get_args(Kind)
WORSE: frozenset[Kind] = frozenset({"fails", "degraded", "slower"})
State = Literal["suspected", "persists", "over"]

# Segments with fewer points are judged neighbour by neighbour: a detector needs both sides.
ENOUGH_POINTS = 8
# Failures from outside the code: no change of it.
_OUTSIDE = frozenset({"environment", "unavailable", "absent", "timeout", "out_of_memory"})


@dataclass(frozen=True, slots=True)
class Change:
    """One change in one series.

    Attributes:
        before: Last point before the change: a commit, release or Python.
        place: First point after it.
        effect: The speedup's factor; ``None`` for failures.
        state: ``suspected`` if the place is the last point; ``persists`` if a later point shows it,
            too; ``over`` if the case later came back to where it was.
        at: When the record at the place was made.
        command: Repeats that record.
    """

    along: Along
    case: Case
    before: str
    place: str
    kind: Kind
    reason: str
    effect: float | None
    state: State
    at: str
    command: str


class Incident(NamedTuple):
    """Changes in the same direction at the same place, the largest first."""

    along: Along
    before: str
    place: str
    worse: bool
    changes: tuple[Change, ...]

    @property
    def at(self) -> str:
        """When the newest of its records was made."""
        return max(change.at for change in self.changes)


def find_changes(
    records: Iterable[RunRecord],
    spreads: Spreads,
    commit_order: Sequence[str] = (),
    along: Iterable[Along] = ALONG,
) -> tuple[Change, ...]:
    """Return all changes along commits, releases and Pythons.

    Nothing is said against a commit at which a case reaches the same sources as before. False
    discoveries are controlled over all neighbours that are judged along one field.

    Args:
        records: One per case and commit (``load_records``).
        spreads: What runs of the same code differ by.
        commit_order: Commits up to HEAD, oldest first.
        along: The fields.
    """
    records = tuple(records)
    found: list[Change] = []
    for field in along:
        every = series_of(records, field, commit_order)
        pairs = {
            (number, one.name, other.name): (one.record, other.record)
            for number, series in enumerate(every)
            for segment in series.segments()
            if len(segment) < ENOUGH_POINTS
            for one, other in pairwise(segment)
            if _may_differ(one, other, field) and not (one.record.failure or other.record.failure)
        }
        judged = judge_changes(pairs, spreads)
        for number, series in enumerate(every):
            for segment in series.segments():
                steps = _steps(segment, field)
                for place, (one, other) in enumerate(pairwise(segment), 1):
                    change = judged.get((number, one.name, other.name))
                    kind = _kind_of(one, other, change, steps.get(place))
                    if kind is not None and _may_differ(one, other, field):
                        found.append(_change(series, segment, place, kind))
    return tuple(found)


def incidents_of(changes: Iterable[Change]) -> tuple[Incident, ...]:
    """Return the incidents, newest first: changes of one direction at one place."""
    groups: dict[tuple[Along, str, str, str, bool], list[Change]] = defaultdict(list)
    for change in changes:
        # What a Python changes, it changes with each release for reasons of its own.
        torch = change.case.torch if change.along == "python" else ""
        worse = change.kind in WORSE
        groups[change.along, change.before, change.place, torch, worse].append(change)
    incidents = [
        Incident(along, before, place, worse, tuple(sorted(group, key=_size)))
        for (along, before, place, _, worse), group in groups.items()
    ]
    return tuple(sorted(incidents, key=lambda one: (one.at, one.place, one.worse), reverse=True))


def _size(change: Change) -> tuple[int, float, Case]:
    effect = -abs(math.log(change.effect)) if change.effect else 0.0
    return KINDS.index(change.kind), effect, change.case


def _may_differ(one: Point, other: Point, along: Along) -> bool:
    """Return whether the two points can differ by more than noise."""
    if along != "commit" or one.record.sources is None:
        return True
    return one.record.sources != other.record.sources


class _Step(NamedTuple):
    """A step in the speedup of a long segment: the medians around it and its text."""

    ratio: float
    text: str


def _steps(segment: Sequence[Point], along: Along) -> dict[int, _Step]:
    """Return the steps of a long segment by the index of the first point after them.

    A step at a commit that changes nothing of the case is moved to the next neighbour that does.
    """
    if len(segment) < ENOUGH_POINTS:
        return {}
    ran = [i for i, point in enumerate(segment) if point.record.speedup is not None]
    speedups = [segment[i].record.speedup for i in ran]
    values = [found.value for found in speedups if found]
    intervals = [(found.low, found.high) for found in speedups if found]
    places = detect(values, intervals)
    steps: dict[int, _Step] = {}
    bounds = [0, *places, len(values)]
    for left, place, right in zip(bounds, bounds[1:], bounds[2:], strict=False):
        before, after = median(values[left:place]), median(values[place:right])
        blamed = next(
            (
                ran[place + shift]
                for shift in (0, -1, 1)
                if 0 < place + shift < len(ran)
                and _may_differ(
                    segment[ran[place + shift] - 1], segment[ran[place + shift]], along
                )
            ),
            None,
        )
        if blamed is not None and max(before, after) / min(before, after) >= RELEVANT["speedup"]:
            side = _side(segment, ran[left:place], ran[place:right])
            text = f"speedup {before:.2f}x to {after:.2f}x over {right - left} points; {side}"
            steps[blamed] = _Step(after / before, text)
    return steps


def _side(segment: Sequence[Point], before: Iterable[int], after: Iterable[int]) -> str:
    """Return how much the medians of both sides' seconds moved."""
    texts = []
    for metric in ("eager", "compiled"):
        was, now = (
            [found.value for i in part if (found := measured(segment[i].record, metric))]
            for part in (before, after)
        )
        if was and now:
            texts.append(f"{metric} {median(now) / median(was):.2f}x")
    return ", ".join(texts)


def _kind_of(
    one: Point, other: Point, change: CaseChange | None, step: _Step | None
) -> tuple[Kind, str, float | None] | None:
    """Return kind, reason and effect of what happened between two neighbours, if anything."""
    if one.record.failure or other.record.failure:
        return _of_failures(one.record.failure, other.record.failure)
    if step is not None:
        return ("slower" if step.ratio < 1 else "faster"), step.text, step.ratio
    if change is None:
        return None
    speedup = change.changes.get("speedup")
    effect = speedup.ratio if speedup else None
    match change.kind:
        case "same" | "noisy":
            return None
        case kind:
            return kind, change.reason, effect


def _of_failures(
    before: Failure | None, after: Failure | None
) -> tuple[Kind, str, float | None] | None:
    failure = before or after
    both = before is not None and after is not None
    if failure is None or both or failure.failure_class in _OUTSIDE:
        return None
    if failure.exception == "SIGKILL":  # somebody, or Linux for lack of memory
        return None
    text = f"{failure.failure_class}: {short_message(failure.message)}".removesuffix(": ")
    return ("fails" if after else "mended"), text, None


def _change(
    series: Series, segment: Sequence[Point], place: int, what: tuple[Kind, str, float | None]
) -> Change:
    one, other = segment[place - 1], segment[place]
    kind, reason, effect = what
    return Change(
        along=series.along,
        case=series.case,
        before=one.name,
        place=other.name,
        kind=kind,
        reason=reason,
        effect=effect,
        state=_state(kind, one.record, [point.record for point in segment[place + 1 :]], effect),
        at=other.record.recorded_at,
        command=other.record.command,
    )


def _state(
    kind: Kind, before: RunRecord, later: Sequence[RunRecord], effect: float | None
) -> State:
    """Return whether the later points of the segment still show the change."""
    if not later:
        return "suspected"
    newest = later[-1]
    if kind in ("fails", "mended"):
        return "persists" if (newest.failure is not None) == (kind == "fails") else "over"
    if newest.speedup is None or before.speedup is None or not effect:
        return "persists"
    # Back when the newest value is nearer to the old level than to the new one.
    moved = math.log(newest.speedup.value / before.speedup.value)
    return "persists" if abs(moved) >= abs(math.log(effect)) / 2 else "over"
