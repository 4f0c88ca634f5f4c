"""Which stage of the compiler makes a symptom, what cures it, and how two cells' code differs.

A trial (``ivhl.measure.stages``) compiles the case with one backend or one setting. The backends
build on each other: the first one that shows the symptom names the stage that adds it.

The records suspect releases: where a case shows a symptom, and where it does not.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice, pairwise, zip_longest
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ivhl.errors import SpecError
from ivhl.tracker.changes.kinds import CaseChange, judge_changes
from ivhl.tracker.store.metrics import NORMAL_95, RELEVANT, measured, student
from ivhl.tracker.store.records import grouped_by, newest_by
from ivhl.tracker.support.compat import release_key
from ivhl.tracker.wording import counted, counts_of, seconds, short_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.index import Index
    from ivhl.tracker.store.spread import Spreads


Stage = Literal["eager", "aot_eager", "aot_eager_decomp_partition", "inductor"]
STAGES: Final[dict[Stage, str]] = {
    "eager": "Dynamo: what it traces, guards or hands on shows it, with no compiler behind it",
    "aot_eager": "AOTAutograd: its traced graphs show it, run eagerly",
    "aot_eager_decomp_partition": "decompositions, or the partition into forward and backward",
    "inductor": "Inductor: its passes, lowerings or code",
}
# Of seconds, where the first stages run operations one by one.
SLOW_STAGES: Final[dict[Stage, str]] = {
    "eager": "PyTorch's own operations, or Dynamo's guards: the graph is slower without a compiler",
    "aot_eager": "AOTAutograd: what surrounds each call, or the operations that it traces",
    "aot_eager_decomp_partition": "decompositions: other or more operations",
    "inductor": "Inductor: the code that it generates, the compiler of that code, or what surrounds "
    "each call, which the slower stages before hide",
}
MET_DEADLINE: Final = "met its deadline"
TrialOutcome = Literal["shows", "works", "other", "not here"]
_HEADERS: Final = re.compile(r'^\s*(?:#include .*|//.*|#.*)$|"[^"]*\.h"', re.MULTILINE)
_NAMES: Final = re.compile(r"0x[0-9a-f]+|/\S+/|(?<=_)[0-9a-z]{40,}")
_SHOWN_LINES: Final = 24
# Beside the report: how all kernels differ.
KERNELS_FILE: Final = "kernels.diff"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """What a trial showed.

    Attributes:
        outcome: ``other`` for another failure, which says nothing about the symptom; ``not here``
            where the release has no such setting.
        text: What was seen.
        compiled_s: Median seconds of a compiled call, if it was timed.
        breaks: Graph breaks, and frames that ran eagerly.
        kernels: The code that PyTorch printed of each.
    """

    outcome: TrialOutcome
    text: str
    compiled_s: float | None = None
    eager_s: float | None = None
    breaks: int | None = None
    kernels: Sequence[str]
    bisected: Mapping[str, Any]
    script: Mapping[str, Any]


def tried_of(
    found: Mapping[str, Any], status: int | None, symptom: str, *, above: float = 0.0
) -> Tried:
    """Return what the journal of a trial says.

    Args:
        found: Its findings.
        status: Exit status of its process; ``None`` if it met its deadline.
        symptom: A failure class, ``graph-break`` or ``slow``.
        above: Number of graph breaks, or seconds of compiled code, from which it shows the symptom.
    """
    failure = found.get("failure")
    breaks, compiled_s = _breaks(found.get("compile")), _median(found.get("compiled"))
    outcome: TrialOutcome = "works"
    text = "works"
    if found.get("not_here"):
        outcome, text = "not here", str(found["not_here"])
    elif not found.get("done"):
        how = MET_DEADLINE if status is None else f"ended with status {status}"
        outcome, text = ("shows" if symptom == "crash" and status else "other"), how
    elif failure is not None:
        outcome = "shows" if failure["failure_class"] == symptom else "other"
        text = f"{failure['failure_class']}: {short_message(failure['message'])}"
    elif symptom == "graph-break":
        outcome = "shows" if (breaks or 0) > above else "works"
        text = counted(breaks or 0, "graph break")
    elif symptom == "slow" and compiled_s is not None:
        outcome = "shows" if compiled_s > above > 0 else "works"
        text = seconds(compiled_s)
    return Tried(
        outcome=outcome,
        text=text,
        compiled_s=compiled_s,
        eager_s=_median(found.get("eager")),
        breaks=breaks,
        kernels=found.get("kernels") or (),
        bisected=found.get("bisected") or {},
        script={
            k: found[k] for k in ("script", "why", "operations", "of", "inputs") if k in found
        },
    )


def symptom_in(record: RunRecord) -> str:
    """Return the failure class of a record, ``graph-break`` if it has one, or nothing."""
    if record.failure is not None:
        return record.failure.failure_class
    return "graph-break" if breaks_in(record) else ""


def breaks_in(record: RunRecord) -> int:
    """Return the graph breaks of a record with the frames that ran eagerly."""
    counts = counts_of(record.compile)
    return 0 if counts is None else counts.graph_breaks + counts.eager_frames


def first_stage(tried: Mapping[str, Tried]) -> Stage | None:
    """Return the first stage that shows the symptom; ``None`` if none does, or an earlier failed.

    A stage that fails in another way hides whether it would show the symptom: nothing behind it can
    be blamed alone.
    """
    for stage in STAGES:
        one = tried.get(stage)
        if one is None or one.outcome in ("other", "not here"):
            return None
        if one.outcome == "shows":
            return stage
    return None


class StageFactor(NamedTuple):
    """By how much a stage became slower, with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f}x [{self.low:.2f}, {self.high:.2f}]"


def stage_factors(
    good: Sequence[Mapping[str, Tried]], bad: Sequence[Mapping[str, Tried]]
) -> dict[Stage, StageFactor]:
    """Return by how much each stage became slower, from runs of both cells that took turns.

    A compiled call is timed beside eager ones, in the same rounds: where these took longer than in
    other trials of the cell, so did the machine. What is left of the noise is taken to be the same
    in all stages of a cell.

    Args:
        good: The trials by stage, of each run in the cell that is faster.
        bad: Likewise in the other cell.
    """
    sides = [_logarithms(side) for side in (good, bad)]
    residuals = [
        value - fmean(values)
        for seconds, _ in sides
        for values in seconds.values()
        for value in values
    ]
    groups = sum(len(seconds) for seconds, _ in sides)
    freedom = len(residuals) - groups
    noise = math.sqrt(sum(one * one for one in residuals) / freedom) if freedom > 0 else math.inf
    drift = sum(stdev(runs) ** 2 / len(runs) for _, runs in sides if len(runs) > 1)
    found: dict[Stage, StageFactor] = {}
    for stage in STAGES:
        was, now = (seconds.get(stage, []) for seconds, _ in sides)
        if not was or not now:
            continue
        factor = fmean(now) - fmean(was)
        error = math.sqrt(noise**2 * (1 / len(was) + 1 / len(now)) + drift)
        reach = student(NORMAL_95, freedom) * error if freedom > 0 else math.inf
        low, high = factor - reach, factor + reach
        found[stage] = StageFactor(*(math.exp(min(one, 700)) for one in (factor, low, high)))
    return found


def _logarithms(
    runs: Sequence[Mapping[str, Tried]],
) -> tuple[dict[Stage, list[float]], list[float]]:
    """Return of each stage its seconds at one speed of the machine, and of each run that of eager.

    All of them as logarithms.
    """
    eager = [
        [math.log(one.eager_s) for one in run.values() if one.eager_s and one.compiled_s]
        for run in runs
    ]
    usual = fmean(value for run in eager for value in run) if any(eager) else 0.0
    found: dict[Stage, list[float]] = {}
    for run in runs:
        for stage in STAGES:
            one = run.get(stage)
            if one is not None and one.compiled_s:
                slowed = math.log(one.eager_s) - usual if one.eager_s else 0.0
                found.setdefault(stage, []).append(math.log(one.compiled_s) - slowed)
    return found, [fmean(run) for run in eager if run]


def slower_stage(factors: Mapping[Stage, StageFactor]) -> tuple[Stage | None, bool]:
    """Return the first stage that lost half of what Inductor's code lost, and whether it is sure.

    Half on a logarithmic scale. It is ``None`` where Inductor's code is not slower. Sure is what no
    value in the intervals would change.
    """
    whole = factors.get("inductor")
    if whole is None or whole.value <= 1:
        return None, whole is not None and whole.high < RELEVANT["compiled"]
    half = math.sqrt(whole.value)
    stage = next(stage for stage, one in factors.items() if one.value >= half)
    listed = list(factors)
    sure = whole.low > 1 and all(
        not one.low < half <= one.high
        for earlier, one in factors.items()
        if listed.index(earlier) <= listed.index(stage) and earlier != "inductor"
    )
    return stage, sure


def kernel_hunks(good: Tried, bad: Tried) -> list[list[str]]:
    """Return how the kernels differ that are not in both cells: lines for each place."""
    was, now = ([*map(bare_kernel, side.kernels)] for side in (good, bad))
    left, right = ([t for t in side if t not in other] for side, other in ((was, now), (now, was)))
    hunks: list[list[str]] = []
    for number, (one, other) in enumerate(zip_longest(left, right, fillvalue=""), 1):
        diff = unified_diff(one.splitlines(), other.splitlines(), lineterm="", n=1)
        for line in islice(diff, 2, None):  # after the two names
            if line.startswith("@@"):
                hunks.append([f"{line} kernel {number}"])
            else:
                hunks[-1].append(line)
    return hunks


def _most_changed(hunks: Sequence[list[str]]) -> Iterator[str]:
    """Yield the hunks in which most lines change, in their order, as many as a report shows."""
    ranked = sorted(hunks, key=lambda hunk: -sum(line[0] in "+-" for line in hunk))
    chosen: list[list[str]] = []
    for hunk in ranked:
        if sum(map(len, chosen)) + len(hunk) <= _SHOWN_LINES:
            chosen.append(hunk)
    if not chosen:
        yield from ranked[0][:_SHOWN_LINES]
    for hunk in hunks:
        if any(hunk is one for one in chosen):
            yield from hunk


def code_differences(good: Tried, bad: Tried, *, timed: bool) -> list[str]:
    """Return how breaks and kernels of two cells differ, a line or paragraph each.

    Of the kernels, the places at which most changes; ``KERNELS_FILE`` is to hold all of them.

    Args:
        good: The case compiled in the cell without the symptom.
        bad: The case compiled in the other one.
        timed: Whether the symptom is time, of which equal code is not the cause.
    """
    lines = []
    if good.breaks is not None and bad.breaks is not None:
        same = f"{good.breaks} in both" if good.breaks == bad.breaks else ""
        lines.append(f"graph breaks: {same or f'{good.breaks} and {bad.breaks}'}")
    was_kernels, now_kernels = ([*map(bare_kernel, side.kernels)] for side in (good, bad))
    if bad.outcome != "shows" or now_kernels:
        hunks = kernel_hunks(good, bad)
        lines += _kernel_lines(was_kernels, now_kernels, hunks, timed=timed)
    elif was_kernels:
        lines.append(f"generated kernels: {len(was_kernels)}; none where it fails")
    return lines


def bare_kernel(text: str) -> str:
    """Return the code of a kernel without what differs between two folders: headers and comments."""
    body = text.partition("\n")[2] if text.partition("\n")[0].endswith("Kernel:") else text
    return "\n".join(
        line.rstrip()
        for line in _NAMES.sub("", _HEADERS.sub("", body)).splitlines()
        if line.strip()
    )


def _kernel_lines(
    was: list[str], now: list[str], hunks: list[list[str]], *, timed: bool
) -> list[str]:
    if was == now and was:
        text = f"generated kernels: {counted(len(was), 'kernel')}, identical"
        if timed:
            text += (
                ": what differs is what a call does around them, or the compiler of their code, or "
                "the machine"
            )
        return [text]
    same = len(Counter(was) & Counter(now))
    lines = [f"generated kernels: {len(was)} and {len(now)}, {same} of them identical"]
    if hunks:
        shown = list(_most_changed(hunks))
        lines.append("\n".join(("```diff", *shown, "```")))
        if left := sum(map(len, hunks)) - len(shown):
            lines.append(
                f"{counted(left, 'more line')} of this difference in {KERNELS_FILE}: above is where "
                "most lines change"
            )
    return lines


def _breaks(facts: Mapping[str, Any] | None) -> int | None:
    if facts is None or facts.get("frames_total") is None:
        return None
    eager = facts["frames_total"] - (facts["frames_ok"] or 0)
    return int(sum(one["count"] for one in facts["graph_breaks"]) + eager)


def _median(arm: Mapping[str, Any] | None) -> float | None:
    return median(arm["samples_s"]) if arm and arm.get("samples_s") else None


def by_release(records: Iterable[RunRecord]) -> dict[str, RunRecord]:
    """Return the newest record of each release, oldest release first."""
    newest = newest_by(records, lambda record: record.cell.torch)
    return {release: newest[release] for release in sorted(newest, key=release_key)}


def runs_of(index: Index, entries: Sequence[Entry]) -> list[dict[str, RunRecord]]:
    """Return the newest record of each release, of each machine at each commit by itself."""
    runs = grouped_by(index.read(entries), lambda record: (record.machine.name, record.commit))
    return [*map(by_release, runs.values())]


def suspected(
    records: Mapping[str, RunRecord], bad: str | None, good: str | None, sought: str, case: str
) -> tuple[str, str | None]:
    """Return the release that shows it and one that does not, by the records where not named.

    Raises:
        SpecError: If no record shows it and no release is named.
    """
    fewest = min(map(breaks_in, records.values()), default=0)
    shows = {
        release: record.failure is not None if sought == "failure" else breaks_in(record) > fewest
        for release, record in records.items()
    }
    if bad is None:
        bad = next((release for release in reversed(shows) if shows[release]), None)
    if bad is None:
        raise SpecError(
            f"no record of {case} on this Python shows a {sought}",
            hint="name the release: --torch RELEASE, and --for CLASS if it has no record",
        )
    if good is None:
        works = [release for release, shown in shows.items() if not shown and release != bad]
        key = release_key(bad)
        later = [release for release in works if release_key(release) > key]
        good = later[0] if later else (works[-1] if works else None)
    return bad, good


def slower(
    runs: Iterable[Mapping[str, RunRecord]],
    spreads: Spreads,
    bad: str | None,
    good: str | None,
    case: str,
) -> tuple[str, str]:
    """Return the releases of the largest slowdown between neighbours that were measured alike.

    The largest by the lower end of its interval, of those that noise does not explain.

    Raises:
        SpecError: If no records show one and a release is not named.
    """
    if bad is not None and good is not None:
        return bad, good
    pairs: dict[tuple[int, str, str], tuple[RunRecord, RunRecord]] = {}
    for number, records in enumerate(runs):
        timed = [release for release, one in records.items() if measured(one, "compiled")]
        for one, other in pairwise(timed):
            if bad in (None, other) and good in (None, one):
                pairs[number, one, other] = records[one], records[other]
    steps = {
        (one, other): _least(change)
        for (_, one, other), change in judge_changes(pairs, spreads).items()
        if change.kind == "slower"
    }
    if not steps:
        raise SpecError(
            f"no records of one machine and commit show that compiled code of {case} became slower "
            "from a release to the next by more than noise",
            hint="name both: --torch SLOWER --good FASTER",
        )
    before, after = max(steps, key=lambda step: steps[step])
    return after, before


def _least(change: CaseChange) -> float:
    """Return by how much compiled code became slower at least, alone or against eager code."""
    alone, beside = (change.changes.get(metric) for metric in ("compiled", "speedup"))
    return max(alone.low if alone else 0.0, 1 / beside.high if beside else 0.0)


def symptom_of(sought: str, given: str | None, record: RunRecord | None, case: str) -> str:
    """Return the failure class that is asked for.

    Raises:
        SpecError: If neither an option nor a record names it.
    """
    if sought == "slowdown":
        return "slow"
    found = given or (symptom_in(record) if record is not None else "")
    if sought == "graph-break":
        return "graph-break"
    if not found or found == "graph-break":
        raise SpecError(
            f"no record says how {case} fails there",
            hint="--for wrong, compile, backend_compile or another class (docs/measuring.md)",
        )
    return found
