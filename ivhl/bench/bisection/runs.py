"""The runs of a search: what is measured where, and which records are there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ivhl.bench.bisection.question import NotMeasured, Position, Question, seen_in
from ivhl.bench.experiment.evidence import (
    DRIFT,
    PROCESSES_PER_ROUND,
    PROCESSES_PER_RUN,
    difference_in_session,
    difference_in_turns,
    expected_noise,
)
from ivhl.bench.request import Selection
from ivhl.errors import IvhlError, LockError
from ivhl.matrix.locks import lock_state
from ivhl.records.age import recorded_rank
from ivhl.records.answers import is_final
from ivhl.tracker.causes.attribution import Treatment
from ivhl.tracker.changes.comparable import differences
from ivhl.tracker.store.entries import code_of
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import case_name
from ivhl.tracker.store.spread import kind_of, shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ivhl.bench.experiment import Runs
    from ivhl.measure.effort import Effort
    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.comparable import Axis
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.metrics import Metric


class Places:
    """Measures the places of a search, and finds their records.

    Args:
        question: The change to search for.
        runs: Measures.
        results: Folder of the results.

    Attributes:
        n_runs: Runs so far.
    """

    def __init__(self, question: Question, runs: Runs, results: Path) -> None:
        self._question, self._runs, self._results = question, runs, results
        self.n_runs = 0
        self._request = runs.request
        self._subjects: dict[tuple[str, str | None], int] = {}

    def run(self, place: int, *, force: bool) -> RunRecord:
        """Return the record of a new run of a place; raises ``NotMeasured``."""
        effort = replace(
            self._request.effort,
            force=force,
            cold=self._question.sought == "compile-time",
        )
        if self._question.timed and not self._question.in_turns:
            effort = replace(effort, processes=PROCESSES_PER_ROUND)
        record = self._added([place], effort).get(place)
        if record is None and not force:
            record = self.newest(self._question.positions[place])
        if record is None:
            raise NotMeasured("no record of it was written")
        return record

    def run_each(
        self, place: int, against: int, there: dict[int, RunRecord], *, last_first: bool
    ) -> dict[int, RunRecord]:
        """Return runs of both places, one after the other; the first alternates."""
        runs = dict(there)
        for which in (place, against) if last_first else (against, place):
            if which not in runs:
                runs[which] = self.run(which, force=True)
        return runs

    def run_both(self, place: int, against: int) -> dict[int, RunRecord]:
        """Return the records of two commits whose processes took turns in one run."""
        effort = replace(self._request.effort, force=True, processes=PROCESSES_PER_RUN)
        runs = self._added([against, place], effort)
        if place in runs and runs[place].failure is not None:
            raise NotMeasured(seen_in(runs[place], "failure"))
        for one in (against, place):
            if one not in runs:
                name = self._question.positions[one].name
                raise NotMeasured(f"no record of {name[:8]} was written")
        return runs

    def _added(self, places: Sequence[int], effort: Effort) -> dict[int, RunRecord]:
        """Measure the case at a place, or at two commits, and return the records that this added.

        Raises:
            NotMeasured: If that cannot be done there.
            IvhlError: If it can be done nowhere.
        """
        positions = [self._question.positions[place] for place in places]
        arms = [Treatment(self._question.python, one.torch, one.commit) for one in positions]
        titles = ", interleaved with ".join(one.title for one in positions[::-1])
        self._runs.console.print(f"measures {titles}")
        sizes = self._runs.sizes(arms)
        try:
            self._runs.run(arms, Selection(cases=(self._question.case,)), effort)
        except LockError as error:
            raise NotMeasured(str(error)) from error
        except IvhlError as error:
            if type(error) is not IvhlError:
                raise
            raise NotMeasured(str(error)) from error
        self.n_runs += 1
        case = self._question.case
        added = {
            place: self._runs.added(arm, sizes) for place, arm in zip(places, arms, strict=True)
        }
        return {place: records[case] for place, records in added.items() if case in records}

    def run_or_find(self, place: int) -> tuple[RunRecord, bool]:
        """Return the record of a place, and whether it was measured just now."""
        stored = self.newest(self._question.positions[place])
        record = stored or self.run(place, force=False)
        return record, stored is None and record.same_as is None

    def newest(self, position: Position) -> RunRecord | None:
        """Return the newest record of a position; ``None`` without one."""
        return self.newest_of([position]).get(position.name)

    def newest_of(self, positions: Iterable[Position]) -> dict[str, RunRecord]:
        """Return the newest record of each position that has one."""
        names = {(p.commit, self._question.cell(p).id): p.name for p in positions}
        index = open_index(self._results)
        found: dict[str, Entry] = {}
        for entry in index.entries:
            key = entry.case
            name = names.get((entry.commit, key.cell))
            made = key.machine, key.device, key.existing, case_name(key)
            here = self._request.machine, self._request.effort.device, False, self._question.case
            if name is None or made != here:
                continue
            # A case whose precision was declared otherwise has records of both.
            if name not in found or _age(found[name]) < _age(entry):
                found[name] = entry
        return dict(zip(found, index.read(found.values()), strict=True))

    def stored(self, place: int, first: RunRecord | None) -> RunRecord | None:
        """Return a record that answers for a place, made as those of the first place are."""
        position = self._question.positions[place]
        record = self.newest(position)
        first = first or self.newest(self._question.positions[0])
        if record is None or first is None:
            return None
        axis: Axis = self._question.along
        lock = lock_state(self._request.root, self._question.cell(position))
        answers = (
            is_final(record.failure)
            and not record.uncommitted
            and not record.conditions.quick
            and record.cell.lock_sha256 == lock.sha256
            and record.workload_version == first.workload_version
            and not differences(first, record, axis)
        )
        return record if answers else None

    def subject(self, place: int, record: RunRecord) -> str:
        """Note what code a place has; return the name of another place that has the same."""
        if record.sources is None or self._question.along != "commit":
            return ""
        known = self._subjects.setdefault(code_of(record), place)
        return "" if known == place else self._question.positions[known].name

    def moved(
        self, one: RunRecord, other: RunRecord, metric: Metric
    ) -> tuple[float, float] | None:
        """Return the logarithm of the second run over the first, and its noise."""
        if self._question.in_turns:
            return difference_in_turns(one, other, metric)
        apart = difference_in_session(one, other, metric)
        if apart is None:
            return None
        if metric in DRIFT:
            return apart, expected_noise(metric, (one, other))
        # Of the seconds of compiling a run has one sample, and no rounds that show its error.
        return apart, shipped(kind_of(other), metric, calibrated=True).tau


def _age(entry: Entry) -> tuple[object, ...]:
    """Return what is larger for the record that stands for a case now."""
    return entry.case.workload_version, recorded_rank(entry)
