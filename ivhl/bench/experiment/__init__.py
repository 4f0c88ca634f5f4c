"""Measure cases at several arms, interleaved and round by round, until a rule says stop.

An arm is a cell at a commit, perhaps with flags. ``gate --confirm`` compares
two commits, ``attribute`` the corners of a factorial, ``bisect`` two places of a line at a time, and
``repeat`` has one arm. What each concludes is its own.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ivhl.bench.experiment.estimate import Estimate, duration_of_case, estimate, told
from ivhl.bench.experiment.journal import ExperimentJournal, journal_of
from ivhl.bench.main import bench
from ivhl.bench.request import Done, Request, Selection
from ivhl.errors import ResultsError
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.spec import CellSpec
from ivhl.records.files import record_file
from ivhl.records.lines import read_plain
from ivhl.records.reader import records_in
from ivhl.tracker.store.records import case_name, device_type, is_existing
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from ivhl.measure.effort import Effort
    from ivhl.records.record import RunRecord
    from ivhl.tracker.causes.attribution import Treatment

    Measure = Callable[[Request, Console], object]
    # Case and arm to the record that a round has added.
    Table = dict[str, dict[Treatment, RunRecord]]

# Cases without a record that a warning names.
_NAMED = 5


class BegunRun(NamedTuple):
    """One run of a round, as the journal keeps it before the run begins.

    Attributes:
        round: Number of the round, from 1 on.
        run: Number of the run in it, from 0 on.
        sizes: The file of records of each arm to the bytes that it had.
    """

    round: int
    run: int
    sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Runs:
    """Measures arms, and finds the records that this has added.

    Attributes:
        request: Machine, results and effort; commit, cell and cases are filled in.
        console: Where progress is printed.
        measure: Measures one request.
        apart: Folder of the results of arms whose records would take the place of others.
    """

    request: Request
    console: Console
    measure: Measure = bench
    apart: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.request.results or self.request.root / "results"

    def results(self, arm: Treatment) -> Path:
        """Return the folder in which an arm has its records."""
        if self.apart is not None and arm.flags:
            return self.apart / f"results-{'-'.join(arm.flags)}".replace("/", "-")
        return self.folder

    def file(self, arm: Treatment) -> Path:
        """Return the file to which an arm adds its records."""
        cell = CellSpec(arm.python, arm.torch).id
        return record_file(self.results(arm), self.request.machine or "", arm.commit, cell)

    def sizes(self, arms: Iterable[Treatment]) -> dict[str, int]:
        """Return how many bytes the files of arms have."""
        files = map(self.file, arms)
        return {str(path): path.stat().st_size if path.is_file() else 0 for path in files}

    def run(self, arms: Sequence[Treatment], selection: Selection, effort: Effort) -> None:
        """Measure cases at one arm, or at two commits of a cell whose processes are interleaved.

        Raises:
            IvhlError: As ``bench``; the records written before stay.
        """
        *before, arm = arms
        done = self.measure(
            replace(
                self.request,
                python=arm.python,
                releases=(arm.torch,),
                commit=arm.commit,
                base=before[0].commit if before else None,
                results=self.results(arm),
                selection=selection,
                effort=replace(effort, flags=arm.flags),
            ),
            self.console,
        )
        if isinstance(done, Done) and done.missing:
            names = "; ".join(done.missing[:_NAMED])
            what = f"{counted(len(done.missing), 'case')} without a record"
            self.console.print(f"warning: {what}: {names}; asv's output is in {done.log}")

    def estimate(
        self, cases: Collection[str], processes: int, compiling: float = 1.0, arms: int = 1
    ) -> Estimate | None:
        """Return what cases take in a run of so many processes and arms, by records.

        Args:
            cases: Names of cases.
            processes: Processes that time a case.
            compiling: Share of the runs that compile it.
            arms: Commits in a run.

        Returns:
            ``None`` if a case was measured nowhere.
        """
        request = self.request
        return estimate(
            self.folder,
            request.machine,
            request.effort.device,
            cases,
            lambda record: duration_of_case(record, processes, compiling) * arms,
        )

    def added(
        self, arm: Treatment, sizes: Mapping[str, int], until: int | None = None
    ) -> dict[str, RunRecord]:
        """Return the newest record of each case that was added to an arm's file.

        Args:
            arm: The arm.
            sizes: What the files had before.
            until: Bytes of the file after which records belong to a later run.

        Raises:
            ResultsError: If the file has lost records.
        """
        path = self.file(arm)
        start, data = sizes[str(path)], read_plain(path) if path.is_file() else b""
        if len(data) < start:
            raise ResultsError(
                f"{path}: has lost records of a round that was measured",
                hint="restore the file, or remove the journal that the command named",
            )
        found = {}
        for _, record in records_in(data[:until], start):
            if (
                not isinstance(record, str)
                and (record.commit, record.conditions.flags) == (arm.commit, arm.flags)
                and device_type(record) == self.request.effort.device
                and not is_existing(record)
            ):
                found[case_name(record)] = record
        return found


@dataclass(kw_only=True, slots=True)
class Experiment:
    """Rounds of runs of the same cases at all arms.

    Attributes:
        runs: Measures arms.
        kind: The command, for the journal.
        arms: The commits, cells or flags that are compared.
        cases: Names of cases.
        rounds: Most rounds.
        processes: Processes that time a case in each run.
        interleaved: Whether the arms are two commits of one cell, whose processes are interleaved in
            one run. Otherwise runs follow one another, and the first of a round moves on: what a
            session warms up or wears out favours no arm.
        beside: What else the records depend on, such as the digest of the benchmarks.
        check: Raises if a record is not what was asked for.
    """

    runs: Runs
    kind: str
    arms: Sequence[Treatment]
    cases: Sequence[str]
    rounds: int
    processes: int
    interleaved: bool = False
    beside: Sequence[str] = ()
    check: Callable[[Treatment, RunRecord], None] = lambda *_: None
    journal: ExperimentJournal[BegunRun] = field(init=False)

    def __post_init__(self) -> None:
        """Open the journal.

        Raises:
            SpecError: If it belongs to an experiment from before.
        """
        path = journal_of(self.runs.request.root, self.kind, self.about)
        self.journal = ExperimentJournal(path, self.about, _step_of, "run")
        # A record with flags would take the place of one without.
        self.runs = replace(self.runs, apart=path.with_suffix(""))

    @property
    def about(self) -> list[str]:
        """All that the records of the rounds depend on."""
        request = self.runs.request
        effort = request.effort
        words = (request.machine, self.runs.folder, effort.device, effort.threads, self.processes)
        arms = (" ".join((*arm[:3], *arm.flags)) for arm in self.arms)
        return [*arms, *map(str, (*words, INSTRUMENT)), *self.beside, *self.cases]

    def order(self, number: int) -> list[tuple[Treatment, ...]]:
        """Return the runs of a round: the arms that each measures."""
        if self.interleaved:
            return [tuple(self.arms)]
        turn = (number - 1) % len(self.arms)
        return [(arm,) for arm in (*self.arms[turn:], *self.arms[:turn])]

    def tables(self, open_cases: Callable[[], Sequence[str]]) -> Iterator[Table]:
        """Measure round by round, and yield what each has added: cases that all arms have.

        A run that a journal knows is not measured again; of one that was cut off, what it lacks.

        Args:
            open_cases: Returns the cases of the next round; none ends the experiment.

        Raises:
            IvhlError: As ``bench``; the records written before stay.
        """
        if self.journal.lines:
            console = self.runs.console
            console.print(f"goes on in round {self.journal.lines[-1].round}: {self.journal.path}")
        for number in range(1, self.rounds + 1):
            if not (cases := open_cases()):
                break
            try:
                table = self._round(number, cases)
            except KeyboardInterrupt:
                self.runs.console.print("stopped: the same command goes on from there")
                raise
            yield table

    def _round(self, number: int, cases: Sequence[str]) -> Table:
        effort = replace(self.runs.request.effort, force=True, processes=self.processes)
        table: Table = defaultdict(dict)
        for run, arms in enumerate(self.order(number)):
            step = self._step(number, run, arms)
            found = {arm: self.runs.added(arm, step.sizes, self._until(step, arm)) for arm in arms}
            left = [case for case in cases if any(case not in found[arm] for arm in arms)]
            if left and step is self.journal.lines[-1]:
                what = f"{' and '.join(map(str, arms))}, {counted(len(left), 'case')}"
                self.runs.console.print(f"round {number} of {self.rounds}: {what}")
                self.runs.run(arms, Selection(cases=tuple(left)), effort)
                found = {arm: self.runs.added(arm, step.sizes) for arm in arms}
            for arm, records in found.items():
                for case in records.keys() & {*cases}:
                    self.check(arm, records[case])
                    table[case][arm] = records[case]
        return {case: table[case] for case in cases if len(table[case]) == len(self.arms)}

    def _step(self, number: int, run: int, arms: Sequence[Treatment]) -> BegunRun:
        """Return the journal's line of a run; write it if the run has not begun yet."""
        for step in self.journal.lines:
            if (step.round, step.run) == (number, run):
                return step
        step = BegunRun(number, run, self.runs.sizes(arms))
        self.journal.add(step, step._asdict())
        return step

    def _until(self, step: BegunRun, arm: Treatment) -> int | None:
        """Return how long an arm's file was when its next run began; ``None`` if there is none."""
        later = self.journal.lines[self.journal.lines.index(step) + 1 :]
        path = str(self.runs.file(arm))
        return next((one.sizes[path] for one in later if path in one.sizes), None)

    def end(self) -> None:
        """Forget the rounds: the same command begins anew."""
        self.journal.end()
        shutil.rmtree(self.journal.path.with_suffix(""), ignore_errors=True)

    def cost(self, runs: float, most: int = 0) -> str:
        """Return what so many runs are expected to cost, by records."""
        # The compile cache keeps no code that was made with flags.
        compiling = sum(self.rounds if arm.flags else 1 for arm in self.arms)
        share = 1.0 if self.interleaved else compiling / self.rounds / len(self.arms)
        arms = len(self.arms) if self.interleaved else 1
        known = self.runs.estimate(self.cases, self.processes, share, arms)
        return told(
            "expected", runs, known, most=most, of=f" of {counted(len(self.cases), 'case')}"
        )

    def left(self, table: Table) -> str:
        """Return what the rounds after the first one cost, by its records.

        The round itself also took what making the environments takes.
        """
        n = len(self.order(1))
        total_s = sum(
            duration_of_case(record, self.processes, 1.0 if arm.flags else 0.0)
            for records in table.values()
            for arm, record in records.items()
        )
        return told("left", (self.rounds - 1) * n, Estimate(total_s / n, first="round"))


def _step_of(data: Any) -> BegunRun:  # noqa: ANN401  (JSON)
    """Return a line of a journal.

    Raises:
        ValueError: If it is none that an experiment writes.
        TypeError: Likewise.
    """
    step = BegunRun(**data)
    numbers = (step.round, step.run, *step.sizes.values())
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("round, run and sizes must be integers from 0 on")
    return step
