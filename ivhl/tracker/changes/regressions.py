"""List every change in the stored history that a person should know, newest first.

Each series is searched for changes of status and of facts, which have no noise, and for steps in
time. Neighbouring releases and Pythons are judged as ``ivhl compare`` judges the two; a detector
adds the levels that only several points together show, and alone decides along many commits.
Changes of many cases at one place are one incident.
The index keeps the changes of a whole history until a record changes (``changes_of``).
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import chain, pairwise
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ivhl.records.age import rank_of
from ivhl.records.identity import CaseInCell
from ivhl.tracker.changes import kinds
from ivhl.tracker.changes.compare import session_reach
from ivhl.tracker.changes.disturbed import disturbed_of, slowed_alone
from ivhl.tracker.changes.series import ALONG, Along, Point, Series, series_of
from ivhl.tracker.store.course import HASH, MemoryHistory
from ivhl.tracker.store.facts import changed_facts, is_still_worse
from ivhl.tracker.store.index import Index
from ivhl.tracker.store.metrics import NORMAL_95, RELEVANT, SECONDS, SIDES, Metric
from ivhl.tracker.store.records import grouped_by, newest_versions
from ivhl.tracker.wording import failed_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.kinds import QuantityChange, Tested
    from ivhl.tracker.detection.changepoints import Searched
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.spread import Spreads

    # All runs of a project.
    History = Index | MemoryHistory

    # As ``changepoints.detect_all``: many series to the first index of each level.
    Detect = Callable[[Sequence[Searched]], Sequence[Sequence[int]]]

ChangeState = Literal["suspected", "persists", "over"]
ALONG_WORDS: Final[dict[str, str]] = {"commit": "commit", "torch": "PyTorch", "python": "Python"}

# In segments with fewer points no detector looks for steps: it needs both sides.
ENOUGH_POINTS = 8
# Of another release or Python, nothing below this is acted on, and the mean of all cases moves by
# 1.04x between two sessions (``session_reach``). A commit can be taken back for less.
LEAST_SHOWN: Final = kinds.MEDIUM
# A series has stopped when so many later commits were measured in its cell, and it has no point.
STOPPED_AFTER = 5
# Limits that a busy machine reaches, too: in a history no change of the code.
_LIMITS = frozenset({"timeout", "out_of_memory"})
# Kinds that times decide, so that a disturbed run is no later point of them.
_TIMED: Final[frozenset[kinds.Kind]] = frozenset({"slower", "eager slower", "faster"})
_SLOWED: Final = "; the newest run was {:.2f}x slower on both sides, which no other cell shows"


@dataclass(frozen=True, slots=True)
class Change:
    """One change in one series.

    Attributes:
        before: Last point before the change: a commit, release or Python.
        place: First point after it.
        effect: The factor of the speedup, or of compiled seconds where only these moved, or of
            eager seconds where eager code takes longer; ``None`` for failures.
        state: ``suspected`` if the place is the last point; ``persists`` if a later point shows it,
            too; ``over`` if the case later came back to where it was.
        at: When the record at the place was made.
        command: Repeats that record.
        effect_of: What the effect is a factor of.
        of_levels: Whether only the levels of several points before and behind it show it, and not
            the two runs beside it (``ivhl compare`` of the two).
    """

    along: Along
    case: CaseInCell
    before: str
    place: str
    kind: kinds.Kind
    reason: str
    effect: float | None
    state: ChangeState
    at: str
    command: str
    effect_of: Metric = "speedup"
    of_levels: bool = False


class Incident(NamedTuple):
    """Changes in the same direction at the same place, the largest first."""

    along: Along
    before: str
    place: str
    worse: bool
    changes: tuple[Change, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from all others, and stays the same."""
        torch = self.changes[0].case.torch if self.along == "python" else ""
        return self.along, self.before, self.place, torch, str(self.worse)

    def title(self, arrow: str) -> str:
        """Return e.g. ``PyTorch 2.5.1 -> 2.6.0``; hashes are shortened."""
        longest = HASH if self.along == "commit" else None
        ends = f"{self.before[:longest]} {arrow} {self.place[:longest]}"
        on = f" on PyTorch {self.changes[0].case.torch}" if self.along == "python" else ""
        return f"{ALONG_WORDS[self.along]} {ends}{on}"

    @property
    def at(self) -> str:
        """When the newest of its records was made."""
        return max((change.at for change in self.changes), key=rank_of)


def detect_all(series: Sequence[Searched]) -> Sequence[Sequence[int]]:
    """Return ``changepoints.detect_all``; NumPy, which takes 0.1 s to import, only where needed."""
    from ivhl.tracker.detection import changepoints  # noqa: PLC0415

    return changepoints.detect_all(series)


def find_changes(
    history: History,
    spreads: Spreads,
    commit_order: Sequence[str] = (),
    along: Iterable[Along] = ALONG,
    *,
    wanted: Callable[[Entry], bool] = lambda _: True,
    detect: Detect = detect_all,
) -> tuple[Change, ...]:
    """Return all changes along commits, releases and Pythons.

    Nothing is said against a commit at which a case reaches the same sources as before. False
    discoveries are controlled over all neighbours along commits, and over those of each pair of
    releases or Pythons, as ``compare`` of the two does. Disturbed runs
    (``disturbed_of``) are passed over where times are judged; their facts count.

    Args:
        history: Entries and their records.
        spreads: What runs of the same code differ by.
        commit_order: Commits up to HEAD, oldest first.
        along: The fields.
        wanted: Which entries have their changes returned. All are judged beside the others, so that
            a change is the same whatever is asked for.
        detect: Finds the steps of long segments.
    """
    entries, along = tuple(history.entries), tuple(along)
    # The times of a verdict alone say nothing, either: it has none.
    disturbed = disturbed_of(entries) | {
        entry.id for entry in entries if not entry.failure_class and "speedup" not in entry.values
    }
    found: list[_Suspect] = []
    for name in along:
        every = series_of(entries, name, commit_order)
        cells = _Cells(every, disturbed)
        suspects = _suspects(every, spreads, detect, disturbed)
        found += [
            replace(one, slowed=cells.slowed(one))
            for one in suspects
            if wanted(one.points[1].entry)
        ]
    both = [point.entry for suspect in found for point in suspect.points]
    records = history.read(both)
    changes = (
        _change(suspect, before, after, history, disturbed)
        for suspect, before, after in zip(found, records[::2], records[1::2], strict=True)
    )
    found_here = tuple(change for change in changes if change is not None)
    if "commit" in along and commit_order:
        return (*found_here, *_stopped(entries, wanted, history, commit_order))
    return found_here


def _stopped(
    entries: Sequence[Entry],
    wanted: Callable[[Entry], bool],
    history: History,
    commit_order: Sequence[str],
) -> Iterator[Change]:
    """Yield the series along commits that get no more points, while others of their cell do.

    A series that ends quietly would never be in any list: nothing of it got worse.
    """
    position = {commit: i for i, commit in enumerate(commit_order)}
    version = newest_versions(entry.case for entry in entries)
    last: dict[CaseInCell, Entry] = {}
    measured: dict[tuple[str, str, str, bool], set[int]] = defaultdict(set)
    for entry in entries:
        if entry.commit in position:
            case = entry.case
            measured[case.machine, case.device, case.cell, case.existing].add(
                position[entry.commit]
            )
            if case not in last or position[last[case].commit] < position[entry.commit]:
                last[case] = entry
    ended = []
    for case, entry in sorted(last.items()):
        commits = measured[case.machine, case.device, case.cell, case.existing]
        later = sorted(at for at in commits if at > position[entry.commit])
        replaced = case.workload_version < version[case.workload]
        if len(later) >= STOPPED_AFTER and not replaced and wanted(entry):
            ended.append((entry, later))
    records = history.read(entry for entry, _ in ended)
    for (entry, later), record in zip(ended, records, strict=True):
        yield Change(
            along="commit",
            case=entry.case,
            before=entry.commit,
            place=commit_order[later[0]],
            kind="missing",
            reason=f"no record since; {len(later)} later commits were measured in this cell",
            effect=None,
            state="persists",
            at=entry.recorded_at,
            command=record.command,
        )


@dataclass(frozen=True, slots=True)
class _Suspect:
    """Two neighbours that seem to differ.

    Attributes:
        before: Index of the first one in the segment: disturbed runs may lie between.
        place: Index of the second one.
        step: The step found there, in a long segment.
        changes: What their quantities say, in a short one.
        slowed: By how much the newest run of the segment was slowed alone (``slowed_alone``).
    """

    series: Series
    segment: Sequence[Point]
    before: int
    place: int
    step: _Happened | None = None
    changes: Mapping[Metric, QuantityChange] = field(default_factory=dict)
    slowed: float = 0.0

    @property
    def points(self) -> tuple[Point, Point]:
        return self.segment[self.before], self.segment[self.place]


class _Cells:
    """The series of a case in all cells, which tell a slower release from a disturbed run of one."""

    def __init__(self, every: Iterable[Series], disturbed: frozenset[int]) -> None:
        self._disturbed = disturbed
        self._of_case = grouped_by(every, self._key)

    def slowed(self, suspect: _Suspect) -> float:
        """Return by how much the newest quiet run after a change was slowed alone."""
        behind = self._timed(suspect.segment[suspect.place :])
        if len(behind) <= 1:
            return 0.0
        newest, run = behind.popitem()
        return slowed_alone(run, [*behind.values()], self._others(suspect.series, newest, behind))

    def _others(
        self, mine: Series, newest: str, behind: Iterable[str]
    ) -> Iterator[tuple[Entry, list[Entry]]]:
        """Yield the run of each other cell at the newest point, with those at the points before."""
        for series in self._of_case[self._key(mine)]:
            for segment in series.segments() if series is not mine else ():
                there = self._timed(segment)
                common = [there[name] for name in behind if name in there]
                if newest in there and common:
                    yield there[newest], common

    def _timed(self, points: Iterable[Point]) -> dict[str, Entry]:
        return {
            point.name: point.entry
            for point in points
            if "eager" in point.entry.values and point.entry.id not in self._disturbed
        }

    @staticmethod
    def _key(series: Series) -> tuple[CaseInCell, str]:
        return series.case.over_cells, series.dtype


def _suspects(
    every: Iterable[Series], spreads: Spreads, detect: Detect, disturbed: frozenset[int]
) -> Iterator[_Suspect]:
    tests: dict[tuple[str, ...], list[tuple[_Suspect, dict[Metric, Tested]]]] = defaultdict(list)
    segments = [(series, segment) for series in every for segment in series.segments()]
    found = _steps(segments, detect, disturbed)
    for (series, segment), steps in zip(segments, found, strict=True):
        # A release is measured once, and users of it get what it does: a spike counts.
        by_pair = series.along != "commit" or len(segment) < ENOUGH_POINTS
        for at, place in _pairs(segment, disturbed):
            before, after = segment[at].entry, segment[place].entry
            failed = before.failure_class or after.failure_class
            facts = before.facts != after.facts or before.errors != after.errors
            timed = disturbed.isdisjoint((before.id, after.id))
            step = steps.get(place) if timed else None
            # Of a long history nearly all neighbours end here.
            if not (by_pair or failed or facts or step):
                continue
            if not _may_differ(before, after, series.along):
                continue
            if place - at > 1 and (failed or facts):
                continue  # listed where it happened: at the disturbed run or behind it
            suspect = _Suspect(series, segment, at, place, step)
            if not failed:
                judged = kinds.tests_of(before, after, spreads) if by_pair and timed else {}
                ends = (
                    () if series.along == "commit" else tuple(one.name for one in suspect.points)
                )
                tests[ends].append((suspect, judged))
            elif _is_of_the_code(before, after):
                yield suspect
    for ends, family in tests.items():
        yield from _judged(family, _beside(ends, segments, spreads, disturbed))


def _beside(
    ends: tuple[str, ...],
    segments: Sequence[tuple[Series, Sequence[Point]]],
    spreads: Spreads,
    disturbed: frozenset[int],
) -> Iterator[dict[Metric, Tested]]:
    """Yield the tests of two releases in series in which others lie between, as ``compare`` does."""
    for _, segment in segments if ends else ():
        names = [point.name for point in segment]
        if not {*ends} <= {*names}:
            continue
        at, place = map(names.index, ends)
        one, other = (segment[i].entry for i in (at, place))
        if (
            place - at > 1
            and not (one.failure_class or other.failure_class)
            and disturbed.isdisjoint((one.id, other.id))
            # Where all between are disturbed, the two are neighbours.
            and any(point.entry.id not in disturbed for point in segment[at + 1 : place])
        ):
            yield kinds.tests_of(one, other, spreads)


def _judged(
    family: Sequence[tuple[_Suspect, Mapping[Metric, Tested]]],
    beside: Iterable[Mapping[Metric, Tested]],
) -> Iterator[_Suspect]:
    """Yield what differs of neighbours that are judged together, and beside other tests."""
    limits = kinds.limits_of([*(tested for _, tested in family), *beside])
    for suspect, tested in family:
        before, after = (point.entry for point in suspect.points)
        moved = any(test.p <= limits[metric] for metric, test in tested.items())
        facts = before.facts != after.facts or before.errors != after.errors
        if moved or facts or suspect.step is not None:
            yield replace(suspect, changes=kinds.decide(tested, limits))


def _pairs(segment: Sequence[Point], disturbed: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Yield the indices of neighbours, and of those between which all runs were disturbed."""
    quiet = [i for i, point in enumerate(segment) if point.entry.id not in disturbed]
    yield from pairwise(range(len(segment)))
    yield from ((i, j) for i, j in pairwise(quiet) if j - i > 1)


def incidents_of(changes: Iterable[Change]) -> tuple[Incident, ...]:
    """Return the incidents, newest first: changes of one direction at one place.

    Along releases and Pythons, changes by less than ``LEAST_SHOWN`` are no incident by themselves.
    """
    groups: dict[tuple[Along, str, str, str, bool], list[Change]] = defaultdict(list)
    for change in changes:
        # What a Python changes, it changes with each release for reasons of its own.
        torch = change.case.torch if change.along == "python" else ""
        worse = change.kind in kinds.WORSE
        groups[change.along, change.before, change.place, torch, worse].append(change)
    incidents = [
        Incident(along, before, place, worse, tuple(sorted(group, key=_size)))
        for (along, before, place, _, worse), group in groups.items()
        if along == "commit" or any(map(_is_shown, group))
    ]
    return tuple(
        sorted(incidents, key=lambda one: (rank_of(one.at), one.place, one.worse), reverse=True)
    )


def _is_shown(change: Change) -> bool:
    return change.effect is None or max(change.effect, 1 / change.effect) >= LEAST_SHOWN


def _size(change: Change) -> tuple[int, float, CaseInCell]:
    effect = -abs(math.log(change.effect)) if change.effect else 0.0
    return kinds.KINDS.index(change.kind), effect, change.case


def _may_differ(one: Entry, other: Entry, along: Along) -> bool:
    """Return whether the two can differ by more than noise."""
    return along != "commit" or one.sources is None or one.sources != other.sources


class _Happened(NamedTuple):
    """What happened between two neighbours, or at a step in a long segment.

    Attributes:
        effect: Ratio of the medians after and before a step.
        effect_of: What the effect is a factor of.
        metric: What tells whether it is over.
        of_levels: See ``Change``.
    """

    kind: kinds.Kind
    reason: str
    effect: float | None = None
    effect_of: Metric = "speedup"
    metric: Metric = "speedup"
    of_levels: bool = False


class _Search(NamedTuple):
    """A quantity of a long segment, in which steps are looked for.

    Attributes:
        segment: Its number.
        ran: Indices of the points that have the quantity, without disturbed ones.
    """

    segment: int
    metric: Metric
    ran: Sequence[int]


def _steps(
    segments: Sequence[tuple[Series, Sequence[Point]]], detect: Detect, disturbed: frozenset[int]
) -> list[dict[int, _Happened]]:
    """Return the steps of each segment by the index of the first point after them.

    Short segments have none. The seconds of compiled code are searched where every point has a
    calibration: without one, the machine itself moves them.
    """
    searches = []
    for number, (_, segment) in enumerate(segments):
        if len(segment) < ENOUGH_POINTS:
            continue
        ran = [
            i
            for i, point in enumerate(segment)
            if point.entry.failure_class is None and point.entry.id not in disturbed
        ]
        metrics: tuple[Metric, ...] = ("speedup",)
        if all(segment[i].entry.calibration for i in ran):
            metrics = ("compiled", "speedup")
        for metric in metrics:
            have = [i for i in ran if metric in segment[i].entry.values]
            searches.append(_Search(number, metric, have))
    found = detect([_searched(segments[one.segment][1], one) for one in searches])
    steps: list[dict[int, _Happened]] = [{} for _ in segments]
    for search, places in zip(searches, found, strict=True):
        if places:
            series, segment = segments[search.segment]
            for at, step in _steps_at(places, search, segment, series.along).items():
                # Compiled code that got slower, too, decides, and whether that is over.
                known = steps[search.segment].get(at)
                if known is None or step.kind == known.kind:
                    metric = step.metric if known is None else known.metric
                    steps[search.segment][at] = step._replace(metric=metric)
                elif step.kind != "eager slower":
                    steps[search.segment][at] = step
    return steps


def _searched(segment: Sequence[Point], search: _Search) -> Searched:
    entries = [segment[i].entry for i in search.ran]
    values = [_value(entry, search.metric) for entry in entries]
    return with_intervals(values, [entry.values[search.metric].error for entry in entries])


def with_intervals(values: Sequence[float], errors: Iterable[float]) -> Searched:
    """Return values with the 95 % interval of each within its run.

    Args:
        values: In any unit, above 0.
        errors: Standard errors of their logarithms.
    """
    factors = [math.exp(NORMAL_95 * error) for error in errors]
    return values, [(v / f, v * f) for v, f in zip(values, factors, strict=True)]


def _steps_at(
    places: Sequence[int], search: _Search, segment: Sequence[Point], along: Along
) -> dict[int, _Happened]:
    """Return the steps of one quantity.

    A step at a commit that changes nothing of the case is moved to the next neighbour that does.
    """
    ran, metric = search.ran, search.metric
    values = [_value(segment[i].entry, metric) for i in ran]
    steps: dict[int, _Happened] = {}
    bounds = [0, *places, len(values)]
    for left, place, right in zip(bounds, bounds[1:], bounds[2:], strict=False):
        before, after = median(values[left:place]), median(values[place:right])
        blamed = next(
            (
                ran[place + shift]
                for shift in (0, -1, 1)
                if 0 < place + shift < len(ran)
                and _may_differ(
                    segment[ran[place + shift - 1]].entry, segment[ran[place + shift]].entry, along
                )
            ),
            None,
        )
        if blamed is None or max(before, after) / min(before, after) < RELEVANT[metric]:
            continue
        kind = _kind_of_step(metric, after / before, segment, ran[left:place], ran[place:right])
        if kind is not None:
            sides = _sides(segment, ran[left:place], ran[place:right])
            what = f"{metric} {after / before:.2f}x"
            if metric == "speedup":
                what = f"speedup {before:.2f}x to {after:.2f}x"
            moved = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in sides.items())
            text = f"{what} over {right - left} points; {moved}"
            effect, of = after / before, metric
            if kind == "eager slower":
                effect, of = sides["eager"], "eager"
            steps[blamed] = _Happened(kind, text, effect, of, of, of_levels=True)
    return steps


def _kind_of_step(
    metric: Metric,
    ratio: float,
    segment: Sequence[Point],
    before: Sequence[int],
    after: Sequence[int],
) -> kinds.Kind | None:
    """Return what a step amounts to, by the rule of ``CaseChange.kind``.

    A speedup that moved with the seconds of eager code alone is neither slower nor faster. Eager
    code that takes longer is ``eager slower`` beyond what another session moves its seconds by. What
    only the calibration moved is nothing.
    """
    if metric == "compiled":
        if not _is_borne_out(ratio, segment, before, after):
            return None
        return "slower" if ratio > 1 else "faster"
    sides = _sides(segment, before, after)
    eager, compiled = sides.get("eager", 1.0), sides.get("compiled", 1.0)
    if max(eager, 1 / eager) > max(compiled, 1 / compiled) and (eager < 1) == (ratio < 1):
        return "eager slower" if math.log(eager) > session_reach("eager") else None
    return "slower" if ratio < 1 else "faster"


def _is_borne_out(
    ratio: float, segment: Sequence[Point], before: Sequence[int], after: Sequence[int]
) -> bool:
    """Return whether seconds as measured, or the speedup, moved as compiled seconds did."""
    up = 1 if ratio > 1 else -1
    signs: dict[Metric, int] = {"compiled": up, "speedup": -up}
    for metric, sign in signs.items():
        moved = _ratio(segment, before, after, metric, lambda e, m: e.values[m].value)
        if moved is not None and sign * math.log(moved) >= math.log(RELEVANT["compiled"]):
            return True
    return False


def _sides(
    segment: Sequence[Point], before: Sequence[int], after: Sequence[int]
) -> dict[Metric, float]:
    """Return by how much the medians of both sides' seconds moved."""
    found = ((side, _ratio(segment, before, after, side, _value)) for side in SIDES)
    return {side: ratio for side, ratio in found if ratio is not None}


def _ratio(
    segment: Sequence[Point],
    before: Iterable[int],
    after: Iterable[int],
    metric: Metric,
    value: Callable[[Entry, Metric], float],
) -> float | None:
    """Return the ratio of two medians of a quantity; ``None`` where one part lacks it."""
    was, now = (
        [value(e, metric) for i in part if metric in (e := segment[i].entry).values]
        for part in (before, after)
    )
    return median(now) / median(was) if was and now else None


def _value(entry: Entry, metric: Metric) -> float:
    """Return a quantity; seconds relative to those of the calibration, where there is one."""
    value = entry.values[metric].value
    machine = entry.calibration if metric in SECONDS else None
    return value / machine.value if machine else value


def _is_of_the_code(one: Entry, other: Entry) -> bool:
    """Return whether one of both failed, for a reason that a change of code can have."""
    failed = other if one.failure_class is None else one
    if one.failure_class is not None and other.failure_class is not None:
        return False
    return failed.failure_class not in _LIMITS and not kinds.is_outside(failed)


def _kind_of(suspect: _Suspect, before: RunRecord, after: RunRecord) -> _Happened | None:
    """Return what happened between two neighbours, if anything."""
    if failure := after.failure or before.failure:
        return _Happened("fails" if after.failure else "fixed", failed_as(failure))
    change = kinds.CaseChange(changed_facts(before, after), suspect.changes)
    step = suspect.step
    if step is not None and change.kind in ("unchanged", "inconclusive"):
        return step
    # A factor of the speedup, or, where it did not move that way, of the seconds that did.
    quantity: Metric = "eager" if change.kind == "eager slower" else "speedup"
    decided = "regressed" if change.kind == "slower" else "improved"
    if change.kind in ("slower", "faster") and change.outcome("speedup") != decided:
        quantity = "compiled"
    shown = change.changes.get(quantity)
    effect = shown.ratio if shown else None
    metric = "compiled" if change.outcome("compiled") == decided else quantity
    reason = change.reason
    if step is not None and not change.changes:
        effect, quantity, metric = step.effect, step.effect_of, step.metric
        reason = f"{reason}; {step.reason}"
    match change.kind:
        case "unchanged" | "inconclusive":
            return None
        case kind:
            return _Happened(kind, reason, effect, quantity, metric)


def _change(
    suspect: _Suspect,
    before: RunRecord,
    after: RunRecord,
    history: History,
    disturbed: frozenset[int],
) -> Change | None:
    found = _kind_of(suspect, before, after)
    if found is None:
        return None
    kind = found.kind
    one, other = suspect.points
    later = [point.entry for point in suspect.segment[suspect.place + 1 :]]
    is_slowed = False
    if kind == "degraded" and later:
        # Warnings and errors may be others than before, and nothing worse.
        (newest,) = history.read(later[-1:])
        worse = newest.failure or is_still_worse(before, after, newest)
        state: ChangeState = "persists" if worse else "over"
    else:
        quiet = [entry for entry in later if entry.id not in disturbed]
        later = quiet if kind in _TIMED else later
        is_slowed = bool(suspect.slowed) and found.metric in SECONDS
        state = _state(found, one.entry, other.entry, later, suspect.slowed)
    return Change(
        along=suspect.series.along,
        case=suspect.series.case,
        before=one.name,
        place=other.name,
        kind=kind,
        reason=found.reason + (_SLOWED.format(math.exp(suspect.slowed)) if is_slowed else ""),
        effect=found.effect,
        effect_of=found.effect_of,
        state=state,
        at=after.recorded_at,
        command=after.command,
        of_levels=found.of_levels and suspect.series.along != "commit",
    )


def _state(
    found: _Happened, before: Entry, place: Entry, later: Sequence[Entry], slowed: float
) -> ChangeState:
    """Return whether the later points of the segment still show the change.

    The quantity that moved tells: of code that is slower on both sides, the speedup has stayed. Its
    seconds are less by what slowed the newest run alone (``slowed_alone``).
    """
    if not later:
        return "suspected"
    newest = later[-1]
    if found.kind in ("fails", "fixed"):
        fails = newest.failure_class is not None
        return "persists" if fails == (found.kind == "fails") else "over"
    three = (before, place, newest)
    if not all(found.metric in entry.values for entry in three):
        return "persists"
    # Seconds are at equal speed of the machine only if all three say what it was.
    known = all(entry.calibration for entry in three)
    # Back when the newest value is nearer to the old level than to the new one.
    was, then, now = (
        math.log(_value(e, found.metric) if known else e.values[found.metric].value) for e in three
    )
    if found.metric in SECONDS:
        now -= slowed
    return "over" if abs(now - was) < abs(now - then) else "persists"


def changes_of(
    history: History,
    spreads: Spreads,
    commit_order: Sequence[str] = (),
    along: Iterable[Along] = ALONG,
    *,
    wanted: Callable[[Entry], bool] = lambda _: True,
) -> tuple[Change, ...]:
    """Return ``find_changes``; of an index with its own spreads, what it keeps of them.

    Args:
        history: Entries and their records.
        spreads: As for ``find_changes``, as are ``commit_order``, ``along`` and ``wanted``.
        commit_order: Commits up to HEAD, oldest first.
        along: The fields.
        wanted: Which entries count.
    """
    along = tuple(along)
    detect = partial(steps_in, history) if isinstance(history, Index) else detect_all

    def find() -> tuple[Change, ...]:
        return find_changes(history, spreads, commit_order, along, wanted=wanted, detect=detect)

    if not isinstance(history, Index) or spreads is not history.spreads:
        return find()
    numbers = array("q", (entry.id for entry in history.entries if wanted(entry)))
    asked = sha256(numbers.tobytes() + "\0".join((*along, *commit_order)).encode()).hexdigest()
    kept = history.kept(f"changes {asked}", lambda: [*map(astuple, find())])
    return tuple(Change(name, CaseInCell(*case), *rest) for name, case, *rest in kept)


def steps_in(index: Index, series: Sequence[Searched]) -> list[Sequence[int]]:
    """Return ``changepoints.detect_all`` of many series; the index keeps the answers."""
    questions = [f"steps {_digest_of(*one)}" for one in series]
    known: dict[str, Sequence[int]] = {}
    for question in set(questions):
        if (places := index.answer(question, lasts=True)) is not None:
            known[question] = places
    wanted = {q: one for q, one in zip(questions, series, strict=True) if q not in known}
    if wanted:
        found = dict(zip(wanted, detect_all([*wanted.values()]), strict=True))
        known |= found
        index.keep(found, lasts=True)
    return [known[question] for question in questions]


def _digest_of(values: Sequence[float], intervals: Sequence[tuple[float, float]]) -> str:
    numbers = array("d", chain(values, chain.from_iterable(intervals)))
    return sha256(numbers.tobytes()).hexdigest()[:32]
