"""The part of a record that views need, without samples: a whole history fits into memory."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from ivhl.instrument import version_of
from ivhl.records.identity import AtCommit, CaseInCell, case_of
from ivhl.records.record import FailureClass, Interval, Reference, RunRecord
from ivhl.tracker.store.facts import errors_of, facts_digest
from ivhl.tracker.store.metrics import Measured, Metric, Speed, quantities_of, speed_of_machine
from ivhl.tracker.store.records import is_existing
from ivhl.tracker.wording import DynamoCounts, counts_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Made(NamedTuple):
    """How a record was made: two records can be compared if nothing of it differs.

    Attributes:
        instrument: Version of the instrument, as ``ivhl.instrument.version_of`` has it.
        packages: Those of an existing environment; empty for a cell, whose lock names them.
        wheels: Name, version and hash of the installed wheels of PyTorch and Triton.
        flags: Settings of the compiler that were changed.
        python_build: How the Python was built; ``None`` if the record does not say.
    """

    lock: str | None
    instrument: str
    threads: int
    clock: str
    image: str | None
    packages: tuple[str, ...]
    wheels: tuple[tuple[str, str, str | None], ...]
    flags: tuple[str, ...] = ()
    python_build: str | None = None


class Shown(NamedTuple):
    """What pages show of a record beside its quantities; equal in most runs of a case.

    Attributes:
        breaks: Number of graph breaks; ``None`` for engines without Dynamo.
        recompiles: Likewise.
        eager_peak: Most bytes that an eager call held.
        eager_error: Largest RMSE of eager over the outputs.
        reference: As in the record, as are ``uncommitted`` and ``same_as``.
    """

    breaks: int | None
    recompiles: int | None
    eager_peak: int | None
    eager_error: float | None
    reference: Reference
    uncommitted: bool | None
    same_as: str | None


class Entry(NamedTuple):
    """One record of the index.

    Attributes:
        id: Its place in the index, for ``Index.read``.
        case: What it measured.
        benchmark: As in the record, as are ``sources`` and ``dtype``.
        compiled_s: Median seconds of a compiled call, over all processes.
        facts: Digest of what it says without noise (``facts.facts_digest``).
        errors: The errors of the outputs, as JSON; equal texts are equal errors.
        values: The quantities that it has.
        calibration: The calibration (``metrics.speed_of_machine``).
        shown: What pages show beside the quantities.
    """

    id: int
    case: CaseInCell
    commit: str
    python: str
    torch: str
    dtype: str
    recorded_at: str
    sources: str | None
    benchmark: str | None
    made: Made
    failure_class: FailureClass | None
    exception: str | None
    compiled_s: float | None
    facts: str
    errors: str
    values: dict[Metric, Measured]
    calibration: Speed | None
    shown: Shown

    @property
    def key(self) -> AtCommit:
        """What identifies its record."""
        return self.case, self.commit


class RowFacts(NamedTuple):
    """What a row of a table shows of a record, beside its entry.

    Attributes:
        message: That of the failure; empty without one.
        speedup: As in the record, as are ``aa``, ``command`` and ``engine``.
        quick: As in its conditions.
        counts: What Dynamo counted; ``None`` where nothing was compiled.
        eager_s: Median seconds of an eager call.
    """

    message: str
    speedup: Interval | None
    aa: Interval | None
    quick: bool
    command: str
    engine: str
    counts: DynamoCounts | None
    eager_s: float | None


class Recorded:
    """A record as tables show it; the record itself is read when something asks for it.

    Args:
        entry: Its entry.
        facts: What a row shows beside it.
        read: Reads the record.
    """

    __slots__ = ("_read", "entry", "facts")

    def __init__(self, entry: Entry, facts: RowFacts, read: Callable[[Entry], RunRecord]) -> None:
        self.entry = entry
        self.facts = facts
        self._read = read

    @property
    def record(self) -> RunRecord:
        """The record, with its samples.

        Raises:
            ResultsError: If its file was changed since the index was brought up to date.
        """
        return self._read(self.entry)

    @property
    def commit(self) -> str:
        """As in the record."""
        return self.entry.commit

    @property
    def recorded_at(self) -> str:
        """As in the record."""
        return self.entry.recorded_at


# What can be compared and judged: a record, or what the index keeps of one.
Run = RunRecord | Entry


def entry_of(record: Run, number: int = 0) -> Entry:
    """Return the entry of a record; an entry itself.

    Args:
        record: Any record.
        number: Its place in the index.
    """
    if isinstance(record, Entry):
        return record
    failure = record.failure
    return Entry(
        id=number,
        case=case_of(record),
        commit=record.commit,
        python=record.cell.python,
        torch=record.cell.torch,
        dtype=record.dtype,
        recorded_at=record.recorded_at,
        sources=record.sources,
        benchmark=record.benchmark,
        made=made_of(record),
        failure_class=None if failure is None else failure.failure_class,
        exception=None if failure is None else failure.exception,
        compiled_s=None if record.compiled is None else median(record.compiled.samples_s),
        facts=facts_digest(record),
        errors=json.dumps(errors_of(record)),
        values=quantities_of(record),
        calibration=speed_of_machine(record),
        shown=shown_of(record),
    )


def recorded(record: RunRecord) -> Recorded:
    """Return a record that is in memory as tables show it."""
    return Recorded(entry_of(record), row_facts_of(record), lambda _: record)


def row_facts_of(record: RunRecord) -> RowFacts:
    """Return what a row shows of a record, beside its entry."""
    eager = record.eager
    return RowFacts(
        message="" if record.failure is None else record.failure.message,
        speedup=record.speedup,
        aa=record.aa,
        quick=record.conditions.quick,
        command=record.command,
        engine=record.engine,
        counts=counts_of(record.compile),
        eager_s=median(eager.samples_s) if eager is not None and eager.samples_s else None,
    )


def shown_of(record: RunRecord) -> Shown:
    """Return what pages show of a record beside its quantities."""
    facts = record.compile
    counts = counts_of(facts) if facts is not None and facts.graphs is not None else None
    errors = [one.eager_rmse for one in record.accuracy if one.eager_rmse is not None]
    return Shown(
        breaks=counts and counts.graph_breaks,
        recompiles=counts and counts.recompiles,
        eager_peak=record.memory.eager_peak if record.memory else None,
        eager_error=max(errors, default=None),
        reference=record.reference,
        uncommitted=record.uncommitted,
        same_as=record.same_as,
    )


def made_of(run: Run) -> Made:
    """Return how a run was made."""
    if isinstance(run, Entry):
        return run.made
    conditions = run.conditions
    return Made(
        lock=run.cell.lock_sha256,
        instrument=version_of(conditions.instrument),
        threads=conditions.threads,
        clock=conditions.clock,
        image=conditions.image,
        packages=conditions.packages if is_existing(run) else (),
        wheels=tuple((w.name, w.version, w.record_sha256) for w in conditions.wheels or ()),
        flags=conditions.flags,
        python_build=conditions.python_build,
    )


def code_of(run: Run) -> tuple[str, str | None]:
    """Return the code that was measured: runs of equal code differ by noise only."""
    return run.sources or run.commit, run.benchmark
