"""How long runs of cases take, by records: what a search or a factorial is expected to cost."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.measure.effort import Effort
from ivhl.records.store import case_name
from ivhl.tracker.index import open_index

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


class Foretold(NamedTuple):
    """What cases take in one run, beside ``AROUND_S``.

    Attributes:
        cases_s: Seconds of all cases: of each the median of its records.
        machines: The other machines whose records these are; empty if they are this one's.
    """

    cases_s: float
    machines: tuple[str, ...]

    @property
    def by(self) -> str:
        """What this is known by."""
        if not self.machines:
            return "by earlier records"
        names = " and ".join(self.machines)
        return f"by records of {names if len(self.machines) <= _NAMED else 'other machines'}"


def foretell(
    results: Path,
    machine: str | None,
    device: str,
    cases: Collection[str],
    seconds_of: Callable[[RunRecord], float],
) -> Foretold | None:
    """Return what cases take, by records of this machine, or else of others.

    Args:
        results: Folder of the results.
        machine: Name of this machine.
        device: Where they run.
        cases: Their names.
        seconds_of: Returns what the case of a record would take in a run (``case_seconds``).

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
        cases_s += median(map(seconds_of, timed))
        machines |= {one.machine.name for one in timed} - {machine}
    return Foretold(cases_s, tuple(sorted(machines)))


def case_seconds(record: RunRecord, processes: int) -> float:
    """Return what a case takes in a run that compiles it, by an earlier run of it.

    Each process times the case again, and the first one compiles it; other code is not in the cache
    of an earlier run. The record may be of a run that had it there.
    """
    facts = record.compile
    cold_s = (facts.cold_s or 0.0) if facts is not None else 0.0
    paid_s = cold_s if facts is not None and facts.cold_at is None else 0.0
    # What failed before it was timed does not say of how many processes it was.
    process_s = (record.duration_s - paid_s) / (len(record.rounds) or Effort().processes)
    return processes * process_s + cold_s
