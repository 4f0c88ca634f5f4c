"""Compare two commits, releases, Pythons, machines or stored results, case by case.

Only what ran on both sides is averaged. What is new, missing, fails or is fixed is listed: a mean
over whatever passed gets better when a slow case breaks.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.records.age import recorded_rank
from ivhl.records.identity import AtCommit, CaseInCell, case_of
from ivhl.tracker.changes.comparable import Axis, differences
from ivhl.tracker.changes.disturbed import judge_apart
from ivhl.tracker.changes.kinds import KINDS, CaseChange, Kind, is_outside
from ivhl.tracker.store.metrics import NORMAL_95, Metric, student
from ivhl.tracker.store.records import grouped_by, newest_by
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.wording import NOT_TIMED, counted, failed_as, marked, times

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.spread import Spreads
    from ivhl.tracker.support.expectations import Expectation

SUMMARISED: tuple[Metric, ...] = ("speedup", "eager", "compiled", "cold")
# What two sessions of a machine move all cases by, as a standard deviation of the logarithm, and of
# how many pairs: `python -m studies.tables sessions`. No mean over cases makes it smaller.
BETWEEN_SESSIONS: Final[dict[Metric, float]] = {
    "speedup": 0.019, "eager": 0.086, "compiled": 0.093, "cold": 0.145, "warm": 0.127,
}  # fmt: skip
PAIRS_OF_SESSIONS: Final = 11
_ON_ONE_SIDE: Final[frozenset[Kind]] = frozenset({"new", "missing", "unavailable"})
_VALUE: Final[dict[Axis, Callable[[Entry], str]]] = {
    "commit": attrgetter("commit"),
    "torch": attrgetter("torch"),
    "python": attrgetter("python"),
    "machine": attrgetter("case.machine"),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one case.

    Attributes:
        reason: Why it has this kind, with the numbers.
        change: What changed, if both sides were measured in the same way.
        is_disturbed: Whether the times say nothing, since a run was contended.
        after: The record of the second side, if there is one.
        expectation: The known failure that the second side shows; or, if it passes, the entry that
            still expects it to fail.
    """

    case: CaseInCell
    kind: Kind
    reason: str
    change: CaseChange | None = None
    is_disturbed: bool = False
    after: RunRecord | None = None
    expectation: Expectation | None = None

    @property
    def is_expected(self) -> bool:
        """Whether the second side fails as an entry of the known failures says."""
        return self.expectation is not None and self._fails

    @property
    def is_outdated(self) -> bool:
        """Whether the second side passes although an entry expects it to fail."""
        return self.expectation is not None and not self._fails

    @property
    def _fails(self) -> bool:
        return self.after is not None and self.after.failure is not None

    @property
    def times(self) -> CaseChange | None:
        """What changed, if the times of both sides say something."""
        return None if self.is_disturbed else self.change

    @property
    def effect(self) -> float:
        """Logarithm of the change of the speedup; 0 if there is none. Negative is worse."""
        found = self.times.changes.get("speedup") if self.times else None
        return 0.0 if found is None else math.log(found.ratio)


class Mean(NamedTuple):
    """Geometric mean of a ratio over the cases that ran on both sides.

    Its 95 % interval is that of other cases in other sessions.
    """

    ratio: float
    low: float
    high: float
    cases: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What was compared in one place, e.g. on one Python of one machine.

    Attributes:
        means: Metric to the mean of ``after`` over ``before``.
        counts: Kind to the number of cases.
        apart: Why most cases that both sides have are not in the means; empty if they are.
    """

    place: tuple[str, ...]
    means: dict[Metric, Mean]
    counts: dict[Kind, int]
    apart: str = ""

    @property
    def on_both(self) -> int:
        """The number of cases that both sides have."""
        return sum(n for kind, n in self.counts.items() if kind not in _ON_ONE_SIDE)


def axis_of(names: Sequence[str], entries: Iterable[Entry]) -> Axis | None:
    """Return what both names are, going by the entries; ``None`` if they are no such thing.

    ``commit`` is not found here: git knows commits.
    """
    known = values_of(entries)
    return next((axis for axis, values in known.items() if values.issuperset(names)), None)


def values_of(entries: Iterable[Entry]) -> dict[Axis, set[str]]:
    """Return the releases, Pythons and machines that entries have."""
    entries = tuple(entries)
    axes: tuple[Axis, ...] = ("torch", "python", "machine")
    return {axis: {*map(_VALUE[axis], entries)} for axis in axes}


def choose(entries: Iterable[Entry], axis: Axis, wanted: Collection[str]) -> tuple[Entry, ...]:
    """Return the entries of one side.

    Args:
        entries: All entries.
        axis: What is compared.
        wanted: Values of that field; for commits, every hash of the same code.
    """
    return tuple(e for e in entries if axis == "results" or _VALUE[axis](e) in wanted)


def compare(
    before: Iterable[RunRecord],
    after: Iterable[RunRecord],
    axis: Axis,
    spreads: Spreads,
    disturbed: tuple[Collection[AtCommit], Collection[AtCommit]] = ((), ()),
) -> tuple[Comparison, ...]:
    """Compare two sets of records, the worst case first.

    Where a case has records of several commits, the newest that both sides have is taken, so that
    a release is not blamed for a commit.

    Args:
        before: Records of the first side.
        after: Records of the second side.
        axis: The field in which they differ.
        spreads: What runs of the same code differ by.
        disturbed: The disturbed runs of each side (``disturbed_keys``). Of a case with one, facts
            are compared, and times are not.
    """
    was, now = _sides(before, after, axis)
    found: list[Comparison] = []
    pairs: dict[CaseInCell, tuple[RunRecord, RunRecord]] = {}
    for case in was.keys() | now.keys():
        one, other = was.get(case), now.get(case)
        if known := _without_times(one, other, axis):
            found.append(Comparison(case, *known, after=other))
        elif one is not None and other is not None:
            pairs[case] = one, other
    for case, (change, side) in judge_apart(pairs, spreads, disturbed).items():
        kind, reason = _kind_of(change, side)
        found.append(Comparison(case, kind, reason, change, bool(side), pairs[case][1]))
    return tuple(sorted(found, key=_order_of))


def _without_times(  # noqa: PLR0911  (one for each reason)
    before: RunRecord | None, after: RunRecord | None, axis: Axis
) -> tuple[Kind, str] | None:
    """Return the kind and the reason; ``None`` if what was measured must decide."""
    if after is None:
        return "missing", f"no record; before: {_result(before)}"
    if _is_absent(after):
        return "missing", "the code that the workload measures is absent"
    if before is None or _is_absent(before):
        return "new", _result(after)
    text = f"{_result(before)} before; {_result(after)} now"
    if before.failure and after.failure:
        same = before.failure.failure_class == after.failure.failure_class
        return "unchanged", f"both fail: {_result(after)}" if same else f"both fail: {text}"
    if after.failure:
        if after.failure.failure_class == "unavailable" and axis != "commit":
            what = f"PyTorch {after.cell.torch} for Python {after.cell.python}"
            return "unavailable", f"no wheel of {what}; before: {_result(before)}"
        return ("incomparable" if is_outside(after.failure) else "fails"), text
    if before.failure:
        return ("new" if is_outside(before.failure) else "fixed"), text
    if apart := differences(before, after, axis):
        return "incomparable", "; ".join(apart)
    if axis == "commit" and before.sources is not None and before.sources == after.sources:
        return "unchanged", "the case reaches the same sources at both commits"
    return None


def _is_absent(record: RunRecord) -> bool:
    """Return whether the commit lacks the code that the workload measures."""
    return record.failure is not None and record.failure.failure_class == "absent"


def summarise(comparisons: Iterable[Comparison]) -> tuple[Summary, ...]:
    """Return a summary per place; means are over the cases that ran on both sides only."""
    groups = grouped_by(comparisons, lambda one: one.case.place)
    return tuple(
        Summary(
            place,
            {m: mean for m in SUMMARISED if (mean := _mean(group, m)) is not None},
            {kind: n for kind in KINDS if (n := sum(one.kind == kind for one in group))},
            _apart(group),
        )
        for place, group in sorted(groups.items(), key=lambda item: place_order(item[1][0].case))
    )


def _apart(group: Sequence[Comparison]) -> str:
    """Return why most cases that both sides have cannot be compared; empty if most can."""
    both = [one for one in group if one.kind not in _ON_ONE_SIDE]
    if not both:
        return "no case is on both sides"
    said = {"fails": "fails now: ", "fixed": "failed before: "}
    reasons = Counter(f"{said.get(one.kind, '')}{one.reason}" for one in both if one.times is None)
    if 2 * reasons.total() <= len(both):
        return ""
    reason, n = reasons.most_common(1)[0]
    of = f"{n} of {counted(reasons.total(), 'case')}: " if n < reasons.total() else ""
    return f"{of}{reason}"


def disturbed_cases(comparisons: Iterable[Comparison]) -> str:
    """Return of how many cases a disturbed run keeps the times from being compared; or nothing."""
    n = sum(one.is_disturbed for one in comparisons)
    return f"{counted(n, 'case')} with a disturbed run" if n else ""


def session_reach(metric: Metric) -> float:
    """Return what another session of a machine may move the mean of all cases by, with 95 %.

    As a logarithm.
    """
    return student(NORMAL_95, PAIRS_OF_SESSIONS) * BETWEEN_SESSIONS.get(metric, 0.0)


def _mean(group: Iterable[Comparison], metric: Metric) -> Mean | None:
    logs = [
        math.log(one.times.changes[metric].ratio)
        for one in group
        if one.times is not None and metric in one.times.changes
    ]
    if not logs:
        return None
    middle = fmean(logs)
    error = stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    # Of few cases, other ones may differ by far more than these do.
    quantile = student(NORMAL_95, max(1, len(logs) - 1))
    reach = math.hypot(quantile * error, session_reach(metric))
    low, high = (
        (math.exp(middle - reach), math.exp(middle + reach)) if error < math.inf else (0, math.inf)
    )
    return Mean(math.exp(middle), low, high, len(logs))


def _sides(
    before: Iterable[RunRecord], after: Iterable[RunRecord], axis: Axis
) -> tuple[dict[CaseInCell, RunRecord], dict[CaseInCell, RunRecord]]:
    """Return the record of each case on both sides: of one commit, if they share one."""
    sides: tuple[dict[CaseInCell, RunRecord], dict[CaseInCell, RunRecord]] = ({}, {})
    was, now = (_by_commit(records, axis) for records in (before, after))
    for case in was.keys() | now.keys():
        found = was.get(case, {}), now.get(case, {})
        shared = found[0].keys() & found[1].keys() if axis not in ("commit", "results") else ()
        commit = max(shared, key=lambda commit: recorded_rank(found[1][commit]), default=None)
        for side, records in zip(sides, found, strict=True):
            if records:
                newest = max(records.values(), key=recorded_rank)
                side[case] = newest if commit is None else records[commit]
    return sides


def _by_commit(records: Iterable[RunRecord], axis: Axis) -> dict[CaseInCell, dict[str, RunRecord]]:
    found: dict[CaseInCell, dict[str, RunRecord]] = defaultdict(dict)
    newest = newest_by(records, lambda r: (case_of(r).along(axis), r.commit))
    for (case, commit), record in newest.items():
        found[case][commit] = record
    return found


def _order_of(one: Comparison) -> tuple[int, float, CaseInCell]:
    """Sort by kind, the worst first; where eager code takes longer, the speedup rises."""
    effect = -one.effect if one.kind == "eager slower" else one.effect
    return KINDS.index(one.kind), effect, one.case


def _kind_of(found: CaseChange, side: str) -> tuple[Kind, str]:
    """Return the kind and the reason.

    Where the times of a contended run moved, they must be measured again: they neither show nor rule
    out that the code is slower.
    """
    if not side:
        return found.kind, found.reason
    if found.worse_facts:
        return "degraded", f"{found.reason}; {side}"
    nothing = found.kind in ("unchanged", "inconclusive")
    return ("inconclusive" if nothing else "incomparable"), f"{side}; {found.reason}"


def _result(record: RunRecord | None) -> str:
    if record is None:
        return ""
    if record.failure is not None:
        return marked(failed_as(record.failure), record)
    return marked(times(record.speedup.value) if record.speedup else NOT_TIMED, record)


def place_order(case: CaseInCell) -> tuple[object, ...]:
    """Return a key that sorts by machine and device, then Pythons and releases by number."""
    cell = python_key(case.python), release_key(case.torch)
    return case.machine, case.device, *cell, case.existing
