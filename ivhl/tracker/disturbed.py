"""Which runs another load slowed from their first round to their last: they are in no step of time.

A run is divided by its calibration, which takes out that a machine is slower. What a neighbour takes
of caches and memory slows the calibration and a case by different factors, and eager and compiled
code too, so nothing takes that out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final, TypeVar

from ivhl.records.store import key_of
from ivhl.tracker.changes import judge_changes
from ivhl.tracker.metrics import DISTURBED, difference
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.records.store import Key
    from ivhl.tracker.changes import CaseChange
    from ivhl.tracker.entries import Entry
    from ivhl.tracker.spread import Spreads

K = TypeVar("K")
_BY_CALIBRATION: Final = "{} disturbed, by the calibration: the times say nothing"
# Runs of a machine: of fewer nobody knows what is usual.
FEWEST = 8
# Interquartile ranges beyond the upper quartile, of logarithms. On a machine whose speed varies, as
# that of a laptop does, the calibration is what takes it out.
_FENCE: Final = 1.5


def disturbed_of(entries: Iterable[Entry]) -> frozenset[int]:
    """Return the ids of the entries whose calibration is off those of their machine.

    Off is more than ``DISTURBED`` times the upper quartile of all runs there, and beyond Tukey's
    fence: at most a quarter of a machine's runs. Of a run that was disturbed in part, the quiet
    processes are its calibration (``metrics.speed_of_machine``), so it is none of them.

    Source:
        J. W. Tukey, Exploratory Data Analysis (1977), section 2D.
    """
    groups: dict[tuple[object, ...], list[tuple[float, int]]] = defaultdict(list)
    for entry in entries:
        if entry.calibration is not None and entry.made.clock != "cuda_event":
            made = entry.made
            place = entry.case.machine, made.instrument, made.threads, made.clock
            groups[place].append((entry.calibration.value, entry.id))
    found: set[int] = set()
    for runs in groups.values():
        if len(runs) >= FEWEST:
            low, _, high = quantiles((seconds for seconds, _ in runs), n=4, method="inclusive")
            limit = high * max(DISTURBED, (high / low) ** _FENCE)
            found.update(number for seconds, number in runs if seconds > limit)
    return frozenset(found)


def disturbed_keys(entries: Iterable[Entry]) -> frozenset[Key]:
    """Return the keys of the disturbed ones of all entries of a history (``disturbed_of``)."""
    entries = tuple(entries)
    found = disturbed_of(entries)
    return frozenset(entry.key for entry in entries if entry.id in found)


def judge_apart(
    pairs: Mapping[K, tuple[RunRecord, RunRecord]],
    spreads: Spreads,
    disturbed: tuple[Collection[Key], Collection[Key]],
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


def left_out(n: int) -> str:
    """Return that so many runs are in no step, as a sentence without its full stop."""
    were = "was" if n == 1 else "were"
    return (
        f"{counted(n, 'run')} {were} disturbed, by the calibration, and left out of steps in time"
    )
