"""Estimate from the records how long runs of cases take: what an experiment costs.

The records may have had other work beside them, so a run on an idle machine may take less.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.measure.effort import Effort
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import case_name
from ivhl.tracker.wording import counted, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from ivhl.records.record import RunRecord

# What a run takes beside its cases: it builds and installs the project, and starts asv. Six runs of
# `ivhl bisect --for compile-time` on a VM of two cores took 253 s, of which their records name 183.
AROUND_S: Final = 12.0
# Said where nobody has measured a case; what does is the run itself.
UNKNOWN: Final = "no record says what a run takes: the first one will"
# Machines that a sentence names.
_NAMED: Final = 2


class Estimate(NamedTuple):
    """What cases take in one run, beside ``AROUND_S``.

    Attributes:
        cases_s: Seconds of all cases: of each the median of its records.
        machines: The other machines whose records these are; empty if they are this one's.
        first: What told it in place of records: the first run or round.
    """

    cases_s: float
    machines: tuple[str, ...] = ()
    first: str = ""

    def runs_s(self, n: float) -> float:
        """Return the seconds of so many runs, each with what it takes beside its cases."""
        return n * (self.cases_s + AROUND_S)

    @property
    def by(self) -> str:
        """What this is known by."""
        if self.first:
            return f"by the first {self.first}"
        if not self.machines:
            return "by earlier records"
        names = " and ".join(self.machines)
        return f"by records of {names if len(self.machines) <= _NAMED else 'other machines'}"


def estimate(
    results: Path,
    machine: str | None,
    device: str,
    cases: Collection[str],
    duration_s: Callable[[RunRecord], float],
) -> Estimate | None:
    """Return what cases take, by records of this machine, or else of others.

    Args:
        results: Folder of the results.
        machine: Name of this machine.
        device: Where they run.
        cases: Their names.
        duration_s: Returns the seconds that the case of a record would take in a run
            (``duration_of_case``).

    Returns:
        ``None`` if a case was measured nowhere.
    """
    index = open_index(results)
    cases_s, machines = 0.0, set[str]()
    for case in cases:
        there = [e for e in index.entries if case_name(e.case) == case and e.case.device == device]
        mine = [e for e in there if e.case.machine == machine]
        timed = [one for one in index.read(mine or there) if one.duration_s > 0]
        if not timed:
            return None
        cases_s += median(map(duration_s, timed))
        machines |= {one.machine.name for one in timed} - {machine}
    return Estimate(cases_s, tuple(sorted(machines)))


def duration_of_case(record: RunRecord, processes: int, compiling: float = 1.0) -> float:
    """Return the seconds that a case takes in a run, by an earlier run of it.

    Each process times the case again, and the first one compiles it. The record may be of a run that
    had other code in the compile cache.

    Args:
        record: The earlier run.
        processes: Processes that time the case.
        compiling: Share of the runs that compile it: others find its code in the cache.
    """
    facts, phases = record.compile, record.phase_s or {}
    cold_s = (facts.cold_s or 0.0) if facts is not None else 0.0
    warm_s = (facts.warm_s or 0.0) if facts is not None else 0.0
    paid = facts is not None and facts.cold_at is None
    # What failed before it was timed does not say of how many processes it was.
    n = len(record.rounds) or Effort().processes
    if "timing" in phases:
        once_s = cold_s
        if paid:
            once_s = max(cold_s, phases.get("compile", 0.0) - n * warm_s)
            once_s += phases.get("accuracy", 0.0) + phases.get("reference", 0.0)
        each_s = phases["timing"] / n + warm_s
        # A process waits while another one of the case is timed: that is counted there.
        ran_s = record.duration_s - phases.get("waiting", 0.0)
        rest_s = max(0.0, ran_s - n * each_s - (once_s if paid else 0.0))
    else:
        once_s, rest_s = cold_s, 0.0
        each_s = (record.duration_s - (cold_s if paid else 0.0)) / n
    return compiling * once_s + rest_s + processes * each_s


def told(word: str, runs: float, known: Estimate | None, *, most: int = 0, of: str = "") -> str:
    """Return what runs cost, e.g. ``expected: 4 runs, of 9 s each by earlier records: 36 s``.

    Args:
        word: How the clause begins: ``expected`` or ``left``.
        runs: How many runs are probable.
        known: What the cases of a run take.
        most: How many are seldom exceeded.
        of: What each run measures, such as `` of 3 cases``.
    """
    more = most > round(runs)
    text = f"{word}: {counted(round(runs), 'run')}{of}" + f", seldom more than {most}" * more
    if known is None:
        return f"{text}; {UNKNOWN}"
    text += f", of {seconds(known.runs_s(1))} each {known.by}: {seconds(known.runs_s(runs))}"
    return text + f", seldom more than {seconds(known.runs_s(most))}" * more


def environments(n: int) -> str:
    """Return what making the environments of so many cells costs."""
    return (
        f"what is not there yet of {counted(n, 'environment')} is made: 4.5 to 7 GB each, less what "
        "uv shares"
    )
