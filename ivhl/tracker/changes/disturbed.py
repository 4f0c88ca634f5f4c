"""Find runs that other load slowed throughout; they are in no change point in time.

A run is divided by its calibration, which takes out that a machine is slower. What a neighbour takes
of caches and memory slows the calibration and a case by different factors, and eager and compiled
code too, so nothing takes that out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final, TypeVar

from ivhl.records.identity import AtCommit, CaseInCell, key_of
from ivhl.tracker.changes.kinds import CaseChange, judge_changes
from ivhl.tracker.store.metrics import DISTURBED, difference
from ivhl.tracker.store.records import case_name
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.spread import Spreads

K = TypeVar("K")
_BY_CALIBRATION: Final = "{} disturbed, by the calibration: the times say nothing"
# Runs of a machine: of fewer nobody knows what is usual.
FEWEST = 8
_NAMED: Final = 3
# A contended machine moves the speedup of a run by no more than this factor: those of the 20 runs of
# vm-core1 that are left out are 0.74 to 1.17 times the median of their case
# (``python -m studies.tables disturbed``).
EXPLAINED: Final = 1.5
# Interquartile ranges beyond the upper quartile, of logarithms. On a machine whose speed varies, as
# that of a laptop does, the calibration is what takes it out.
_FENCE: Final = 1.5


def disturbed_of(entries: Iterable[Entry]) -> frozenset[int]:
    """Return the ids of the entries whose calibration is off, so that their times say nothing.

    Each calibration is taken relative to the quiet ones of its cell, or of its machine where the
    cell has few runs. Off is more than ``DISTURBED`` times the upper quartile of these, over the
    machine, and beyond Tukey's fence: at most a quarter of the runs. Of a run that was disturbed in
    part, the quiet processes are its calibration (``metrics.speed_of_machine``), so it is none of
    them. Nor is a run whose speedup no contended machine explains (``EXPLAINED``).

    Source:
        J. W. Tukey, Exploratory Data Analysis (1977), section 2D.
    """
    entries = tuple(entries)
    groups: dict[tuple[object, ...], dict[tuple[str, str, bool], dict[int, float]]] = {}
    for entry in entries:
        if entry.calibration is not None and entry.made.clock != "cuda_event":
            case, made, speed = entry.case, entry.made, entry.calibration
            machine = case.machine, made.instrument, made.threads, made.clock, speed.yardstick
            cells = groups.setdefault(machine, {})
            cells.setdefault((case.python, case.torch, case.existing), {})[entry.id] = speed.value
    found: set[int] = set()
    for cells in groups.values():
        every = [seconds for runs in cells.values() for seconds in runs.values()]
        if len(every) < FEWEST:
            continue
        relative = {
            number: seconds / quiet
            for runs in cells.values()
            for quiet in [_quartiles(runs.values() if len(runs) >= FEWEST else every)[0]]
            for number, seconds in runs.items()
        }
        low, _, high = _quartiles(relative.values())
        limit = high * max(DISTURBED, (high / low) ** _FENCE)
        found.update(number for number, one in relative.items() if one > limit)
    return frozenset(found - _unexplained(entries, found))


def _quartiles(values: Iterable[float]) -> list[float]:
    return quantiles(values, n=4, method="inclusive")


def _unexplained(entries: Sequence[Entry], disturbed: Collection[int]) -> frozenset[int]:
    """Return the disturbed runs whose speedup is off that of every quiet run of the case.

    Eager and compiled code of a run are timed side by side, so what slows the machine slows both.
    """
    quiet: dict[CaseInCell, list[float]] = defaultdict(list)
    loud: list[tuple[CaseInCell, Entry]] = []
    cases = {entry.case for entry in entries}  # of a long history each has hundreds of runs
    over_cells = {case: case.over_cells._replace(existing=False) for case in cases}
    for entry in entries:
        if "speedup" in entry.values:
            case = over_cells[entry.case]
            if entry.id in disturbed:
                loud.append((case, entry))
            else:
                quiet[case].append(entry.values["speedup"].value)
    return frozenset(
        entry.id
        for case, entry in loud
        if (known := quiet.get(case))
        and not min(known) / EXPLAINED <= entry.values["speedup"].value <= max(known) * EXPLAINED
    )


def disturbed_keys(entries: Iterable[Entry]) -> frozenset[AtCommit]:
    """Return the keys of the disturbed ones of all entries of a history (``disturbed_of``)."""
    entries = tuple(entries)
    found = disturbed_of(entries)
    return frozenset(entry.key for entry in entries if entry.id in found)


def judge_apart(
    pairs: Mapping[K, tuple[RunRecord, RunRecord]],
    spreads: Spreads,
    disturbed: tuple[Collection[AtCommit], Collection[AtCommit]],
) -> dict[K, tuple[CaseChange, str]]:
    """Judge cases as ``judge_changes``, those with a disturbed run apart from the others.

    What a neighbour moved is no test beside which the others are judged.

    Args:
        pairs: Key of a case to two comparable measured runs, the earlier first.
        spreads: What runs of the same code differ by.
        disturbed: The disturbed runs of each side (``disturbed_keys``).

    Returns:
        For each case what changed, and which run was disturbed so that the times say nothing; empty
        if none was.
    """
    slowed = {
        case: (key_of(one) in disturbed[0], key_of(other) in disturbed[1])
        for case, (one, other) in pairs.items()
    }
    quiet, loud = ({c: pair for c, pair in pairs.items() if any(slowed[c]) == on} for on in (0, 1))
    changes = judge_changes(quiet, spreads) | judge_changes(loud, spreads)
    return {
        case: (change, _disturbed_side(*slowed[case], in_session=change.in_session))
        for case, change in changes.items()
    }


def _disturbed_side(before: bool, after: bool, *, in_session: bool) -> str:  # noqa: FBT001
    """Return which of two runs was disturbed so that their times say nothing; empty if none.

    What slows two runs of one hour is in both, and the calibrations show that it is.
    """
    if before and after:
        return "" if in_session else f"both runs {_BY_CALIBRATION.format('were')}"
    if not before and not after:
        return ""
    return f"the {'earlier' if before else 'later'} run {_BY_CALIBRATION.format('was')}"


def slowed_alone(
    run: Entry, own: Sequence[Entry], others: Iterable[tuple[Entry, Sequence[Entry]]]
) -> float:
    """Return by how much a run was slowed that no other cell shows slower, as a logarithm, or 0.

    By its eager code. A release or a commit that slows it does so in other cells, too; a neighbour
    that the calibration does not see, in this run alone.

    Args:
        run: The run.
        own: Runs of its cell to which it is compared.
        others: For each other cell, its run at the same place, with those at places of ``own``.
            They are looked for only if the run was slowed.
    """
    here, least = _slower(run, own), math.log(DISTURBED)
    if here <= least:  # nearly always
        return 0.0
    beyond = [here - _slower(*other) for other in others]
    slowed = min(here, median(beyond)) if beyond else 0.0
    return slowed if slowed > least else 0.0


def _slower(run: Entry, others: Sequence[Entry]) -> float:
    """Return by how much eager code takes longer than usual, at equal speed of the machine."""
    return median(difference(other, run, "eager") or 0.0 for other in others)


def left_out(entries: Iterable[Entry], disturbed: Collection[int]) -> str:
    """Return which runs are in no step, as a sentence without its full stop; empty if all are."""
    runs = [entry for entry in entries if entry.id in disturbed]
    if not runs:
        return ""
    were = "was" if len(runs) == 1 else "were"
    names = sorted({f"{case_name(run.case)} in {run.case.cell}" for run in runs})
    shown = ", ".join(names[:_NAMED])
    if len(names) > _NAMED:
        shown += (
            f" and {counted(len(names) - _NAMED, 'other')}; ivhl course CASE marks them with !"
        )
    return (
        f"{counted(len(runs), 'run')} {were} disturbed, by the calibration, and left out of steps "
        f"in time: {shown}"
    )
