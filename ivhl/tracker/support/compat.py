"""Compatibility: one row per Python, PyTorch release, workload, size and variant.

Also what the rows say of the known failures (``ivhl check expectations``).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from packaging.version import Version

from ivhl.records.identity import CaseInCell, case_of
from ivhl.records.record import FailureClass, Interval, Reference, RunRecord
from ivhl.tracker.store.entries import Entry, Recorded, recorded
from ivhl.tracker.store.records import latest_of_cases
from ivhl.tracker.store.spread import CONFIDENCE, SHIPPED, VERDICT_CONFIDENCE, Spreads
from ivhl.tracker.support.expectations import Expectation, Expectations
from ivhl.tracker.wording import STATUS_WORDS, DynamoCounts, Status, counted, marks_with, times

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ivhl.matrix.spec import CellSpec
    from ivhl.workload import Case, Workload


# Failures that do not count against the PyTorch release: ivhl or the workload is at fault, or a
# limit of the machine or the run was reached.
_BLAMELESS: frozenset[FailureClass] = frozenset(
    {"absent", "environment", "build", "inputs", "reference", "timeout", "out_of_memory"}
)
STATUS_OF: dict[FailureClass, Status] = {
    "support_gate": "unsupported",
    "unsupported": "unsupported",
    "unavailable": "unavailable",
    "absent": "unavailable",
    "wrong": "wrong",
}
# With a right result: a case that is slower than eager passes, too.
PASSING: frozenset[Status] = frozenset({"works", "noisy", "slow"})
NONE_EXPECTED = Expectations()
# An interval that reaches below the inverse of this is too wide to say that a case is not slow.
_WIDE = 1.3


# Of ``compat_json``; docs/track.md has the fields.
COMPAT_SCHEMA: Final = "ivhl.compat/1"


def compat_json(rows: Iterable[Row]) -> str:
    """Return the rows as JSON for programs, a line for each."""
    lines = ",\n".join(json.dumps(row.to_dict(), allow_nan=False) for row in rows)
    return f'{{"schema": "{COMPAT_SCHEMA}", "rows": [\n{lines}\n]}}\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The current state of one case in one cell.

    Attributes:
        machine: Empty if no machine has run anything.
        message: Why the status is not ``works``; empty if it is.
        speedup_low: With ``speedup_high``, the 95 % interval for another run
            (``ivhl.tracker.store.spread``).
        within_low: With ``within_high``, the 95 % interval from the rounds of this run.
        existing: Whether it was measured in an existing environment, which no lock describes.
        reference: What the outputs were judged by.
        uncommitted: Whether the working tree differed from the commit.
        expectation: The known failure that this is; or, of a case that passes, the entry that still
            expects it to fail.
        recorded: What the row shows; ``None`` if the case was not run.
    """

    python: str
    torch: str
    cell: str
    machine: str
    device: str
    workload: str
    size: str
    variant: str
    status: Status
    failure_class: FailureClass | None
    message: str
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    within_low: float | None = None
    within_high: float | None = None
    aa_low: float | None = None
    aa_high: float | None = None
    quick: bool | None = None
    existing: bool | None = None
    reference: Reference | None = None
    uncommitted: bool | None = None
    commit: str | None = None
    recorded_at: str | None = None
    command: str | None = None
    expectation: Expectation | None = None
    recorded: Recorded | None = field(default=None, repr=False, compare=False)

    @property
    def record(self) -> RunRecord | None:
        """The record with its samples, which is read now; ``None`` if the case was not run.

        Raises:
            ResultsError: If its file was changed since the index was brought up to date.
        """
        return None if self.recorded is None else self.recorded.record

    @property
    def engine(self) -> str:
        """The engine that ran the case; empty if it was not run."""
        return "" if self.recorded is None else self.recorded.facts.engine

    @property
    def exception(self) -> str:
        """The exception of the failure; empty without one."""
        return "" if self.recorded is None else self.recorded.entry.exception or ""

    @property
    def counts(self) -> DynamoCounts | None:
        """What Dynamo counted."""
        return None if self.recorded is None else self.recorded.facts.counts

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of its verdict (``wording.marks_of``)."""
        if self.recorded is None:
            return ()
        counts = None if self.speedup is None else self.counts
        return marks_with(self.reference, counts, uncommitted=self.uncommitted)

    @property
    def series(self) -> CaseInCell:
        """The series that the row belongs to."""
        return _series(self.machine, self.device, self.workload, self.size, self.variant)

    @property
    def in_cell(self) -> CaseInCell:
        """The case in its cell, of any version."""
        return self.series._replace(python=self.python, torch=self.torch)

    def to_dict(self) -> dict[str, Any]:
        """Return every field but the record, and what was not compiled, ready for JSON."""
        entry, counts = self.expectation, self.counts
        found: dict[str, Any] = {name: getattr(self, name) for name in _IN_JSON}
        found["graph_breaks"] = counts and counts.graph_breaks
        found["eager_frames"] = counts and counts.eager_frames
        found["recompiles"] = counts and counts.recompiles
        found["expectation"] = entry and {
            "class": entry.failure_class,
            "reason": entry.reason,
            "link": entry.link,
        }
        return found

    @property
    def passes(self) -> bool:
        """Whether it has a right result, also if it is slower than eager."""
        return self.status in PASSING

    @property
    def is_fixed(self) -> bool:
        """Whether it passes although an entry of the known failures expects it to fail."""
        return self.expectation is not None and self.failure_class is None

    @property
    def is_failure(self) -> bool:
        """Whether PyTorch failed here: not the machine, the workload or a registry."""
        decided = self.failure_class not in (None, "unavailable") and self.recorded is not None
        # A SIGKILL comes from outside.
        return decided and self.failure_class not in _BLAMELESS and self.exception != "SIGKILL"


_IN_JSON: Final = tuple(
    name for name in Row.__dataclass_fields__ if name not in ("recorded", "expectation")
)


@lru_cache(maxsize=4096)  # every table sorts by it, again and again
def release_key(version: str) -> tuple[bool, Version, str]:
    """Return a key that sorts versions; other names (``nightly``) sort last, by name."""
    try:
        return (False, Version(version), version)
    except ValueError:  # no version, or one with thousands of digits
        return (True, Version("0"), version)


def is_prerelease(release: str) -> bool:
    """Return whether a name is that of a release candidate or a nightly, or of no version."""
    unknown, version, _ = release_key(release)
    return unknown or version.is_prerelease


def newest_release(releases: Iterable[str]) -> str:
    """Return the newest release; empty if there is none. A nightly is it only among nightlies."""
    return max(releases, key=lambda one: (not is_prerelease(one), release_key(one)), default="")


def python_key(python: str) -> tuple[bool, Version, str]:
    """Return a key that sorts Pythons; ``3.14t`` (free-threaded) follows ``3.14``."""
    unknown, version, _ = release_key(python.removesuffix("t"))
    return (unknown, version, python)


def is_free_threaded(python: str) -> bool:
    """Return whether a Python is a free-threaded build: another one of its version, not a newer."""
    return python.endswith("t")


def status_of(record: RunRecord | Recorded, spreads: Spreads = SHIPPED) -> Status:
    """Return the status that a record gives its case.

    *slow*: 99 of 100 other runs would find the variant slower than eager. *noisy*: this run did, and
    others may not; or even one slower by 1.3x would not show.
    """
    if isinstance(record, RunRecord):
        failure = None if record.failure is None else record.failure.failure_class
        speedup = record.speedup
    else:
        failure, speedup = record.entry.failure_class, record.facts.speedup
    return _status(failure, speedup, spreads.another_run(record, confidence=VERDICT_CONFIDENCE))


def _status(
    failure: FailureClass | None, speedup: Interval | None, another: Interval | None
) -> Status:
    """Return the status; ``another`` is the interval of another run for verdicts."""
    if failure is not None:
        return STATUS_OF.get(failure, "failed")
    if speedup is None or another is None or another.low >= 1:
        return "works"
    if another.high < 1:
        return "slow"
    return "noisy" if speedup.high < 1 or another.low < 1 / _WIDE else "works"


def format_speedup(interval: Interval) -> str:
    """Return an estimate with its interval, e.g. ``6.41x [6.20, 6.63]``."""
    low, high = (times(bound)[:-1] for bound in (interval.low, interval.high))
    return f"{times(interval.value)} [{low}, {high}]"


def compat_rows(
    records: Iterable[RunRecord | Recorded],
    *,
    cells: Sequence[CellSpec] = (),
    unavailable: Mapping[str, str] | None = None,
    cases: Sequence[Case] = (),
    workloads: Sequence[Workload] = (),
    commit_order: Sequence[str] = (),
    releases: Collection[str] | None = None,
    pythons: Collection[str] | None = None,
    spreads: Spreads = SHIPPED,
    expectations: Expectations = NONE_EXPECTED,
) -> tuple[Row, ...]:
    """Return a row per expected case (``_wanted``) and cell (``_expected_cells``).

    It has the newest record, or the status ``not_run``.

    Args:
        records: Records of any commits.
        cells: Cells of the matrix.
        releases: Releases for which all cases are expected; ``None`` means all.
        pythons: Pythons that every machine is expected to have; ``None`` means all.
        unavailable: Cell id to why nothing can be installed; a record takes precedence.
        cases: Cases that should have been run.
        workloads: Current workloads of the project; records of other cases have no row.
        commit_order: Commits, oldest first; see ``latest_of_cases``.
        spreads: Learnt differences between runs.
        expectations: Known failures.
    """
    found = [recorded(one) if isinstance(one, RunRecord) else one for one in records]
    declared = declared_cases(workloads)
    kept = (one for one in found if is_declared(one.entry.case, declared))
    newest = latest_of_cases(kept, lambda one: one.entry.case, commit_order)
    entries = [one.entry for one in newest]
    expected = _expected_cells(entries, cells, releases, pythons)
    # A locked cell takes precedence over an existing environment: it can be reproduced anywhere.
    of_series: dict[CaseInCell, dict[str, Recorded]] = defaultdict(dict)
    for one in sorted(newest, key=lambda one: one.entry.case.existing, reverse=True):
        of_series[one.entry.case.row][one.entry.case.cell] = one
    for series in _wanted(entries, cases):
        of_series.setdefault(series, {})
    rows: list[Row] = []
    for series, known in sorted(of_series.items(), key=itemgetter(0)):
        for name in expected(series):
            if (here := known.get(name.cell)) is not None:
                rows.append(_with_expectation(_row(here, series, spreads), expectations))
            elif name.is_expected:
                rows.append(_empty_row(name, series, (unavailable or {}).get(name.cell)))
    return tuple(rows)


class _CellOfSeries(NamedTuple):
    """A cell in which a series may have a row; without a record only if it ``is_expected``."""

    cell: str
    python: str
    torch: str
    is_expected: bool


def _wanted(newest: Sequence[Entry], cases: Iterable[Case]) -> Iterator[CaseInCell]:
    """Yield the series of the cases that should have been run, machine by machine.

    Those that apply to the device, if the machine ran the workload; if no machine did, they are
    expected of the one that ran most on that device: 150 machines with a record each are not 150
    times all that was never run.
    """
    places = sorted({_place_of(entry) for entry in newest}) or [("", "cpu")]
    in_cells = {_place_of(entry) for entry in newest if not entry.case.existing}
    ran = {(*_place_of(entry), entry.case.workload) for entry in newest}
    ran_anywhere = {workload for *_, workload in ran}
    homes = _homes(e for e in newest if not e.case.existing) if newest else {"cpu": ""}
    for machine, device in places:
        for case in cases:
            name = case.workload.name
            if (
                device in case.variant.devices
                and ((machine, device) in in_cells or not newest)
                and (
                    (machine, device, name) in ran
                    or (name not in ran_anywhere and homes.get(device) == machine)
                )
            ):
                yield _series(machine, device, name, case.size, case.variant.name)


def _expected_cells(
    newest: Sequence[Entry],
    cells: Iterable[CellSpec],
    releases: Collection[str] | None,
    pythons: Collection[str] | None,
) -> Callable[[CaseInCell], Sequence[_CellOfSeries]]:
    """Return what returns the cells in which a series may have a row, by Python and release.

    A release outside ``releases`` gets rows only for a workload and size that the machine ran with
    it, a Python outside ``pythons`` only if the machine ran something with it. A cell with records
    that is no longer in the matrix keeps its rows. A machine and device that measured in existing
    environments only have rows for what was measured there.

    Args:
        newest: What was measured.
        cells: Cells of the matrix.
        releases: As for ``compat_rows``.
        pythons: Likewise.
    """
    names = {cell.id: (cell.python, cell.torch) for cell in cells}
    locked = {*names, *(entry.case.cell for entry in newest if not entry.case.existing)}
    for entry in newest:
        names.setdefault(entry.case.cell, (entry.python, entry.torch))
    in_cells = {_place_of(entry) for entry in newest if not entry.case.existing}
    tried: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for entry in newest:
        tried[*_place_of(entry), entry.case.workload, entry.case.size].add(entry.torch)
    has_run = {(*_place_of(entry), entry.python) for entry in newest}
    ordered = sorted(
        names.items(), key=lambda item: (python_key(item[1][0]), release_key(item[1][1]), item[0])
    )

    def expected(series: CaseInCell) -> Sequence[_CellOfSeries]:
        here = series.machine, series.device
        is_cell = here in in_cells or not newest
        known = tried[*here, series.workload, series.size].union(releases or ())
        return [
            _CellOfSeries(cell, python, torch, cell in locked and is_cell)
            for cell, (python, torch) in ordered
            if (pythons is None or python in pythons or (*here, python) in has_run)
            and (releases is None or torch in known)
        ]

    return expected


def _place_of(entry: Entry) -> tuple[str, str]:
    return entry.case.machine, entry.case.device


def _homes(in_cells: Iterable[Entry]) -> Mapping[str, str]:
    """Return, for each device, the machine with most of these records."""
    counts = Counter(map(_place_of, in_cells))
    most_first = sorted(counts, key=lambda place: (-counts[place], place))
    return {device: machine for machine, device in reversed(most_first)}


def declared_cases(workloads: Sequence[Workload]) -> frozenset[tuple[str, int, str, str]]:
    """Return name, version, variant and device of every case that the project has."""
    return frozenset(
        (workload.name, workload.version, variant.name, device)
        for workload in workloads
        for variant in workload.variants
        for device in variant.devices
    )


def is_declared(case: CaseInCell, declared: frozenset[tuple[str, int, str, str]]) -> bool:
    """Return whether the project still has a case; without declarations it has all.

    Others cannot be measured again, so tables and pages leave them out.
    """
    return not declared or (
        (case.workload, case.workload_version, case.variant, case.device) in declared
    )


def retired(records: Iterable[RunRecord], workloads: Sequence[Workload]) -> tuple[RunRecord, ...]:
    """Return the records of cases that the project no longer has; none if ``workloads`` is empty."""
    declared = declared_cases(workloads)
    return tuple(record for record in records if not is_declared(case_of(record), declared))


def _series(machine: str, device: str, workload: str, size: str, variant: str) -> CaseInCell:
    """Return what a row is about (``CaseInCell.row``)."""
    return CaseInCell(machine, device, "", "", False, workload, 0, size, variant)  # noqa: FBT003


def _fields_of(series: CaseInCell) -> dict[str, Any]:
    """Return what a row has of its series."""
    names = ("machine", "device", "workload", "size", "variant")
    return {name: getattr(series, name) for name in names}


def _empty_row(name: _CellOfSeries, series: CaseInCell, reason: str | None) -> Row:
    return Row(
        python=name.python,
        torch=name.torch,
        cell=name.cell,
        **_fields_of(series),
        status="not_run" if reason is None else "unavailable",
        failure_class=None if reason is None else "unavailable",
        message="no record" if reason is None else reason,
    )


def _row(found: Recorded, series: CaseInCell, spreads: Spreads) -> Row:
    entry, facts = found.entry, found.facts
    speedup, aa = facts.speedup, facts.aa
    runs = spreads.another_runs(found, CONFIDENCE, VERDICT_CONFIDENCE)
    another, verdict = runs or (None, None)
    status = _status(entry.failure_class, speedup, verdict)
    message = facts.message
    if status in ("slow", "noisy") and another is not None:
        what = "slower than eager" if status == "slow" else "too noisy to say whether slower"
        message = f"{what}: {format_speedup(another)}"
        if aa is not None:
            message += f"; noise alone gives {format_speedup(aa)}"
    return Row(
        python=entry.python,
        torch=entry.torch,
        cell=entry.case.cell,
        **_fields_of(series),
        status=status,
        failure_class=entry.failure_class,
        message=message,
        speedup=None if speedup is None else speedup.value,
        speedup_low=None if another is None else another.low,
        speedup_high=None if another is None else another.high,
        within_low=None if speedup is None else speedup.low,
        within_high=None if speedup is None else speedup.high,
        aa_low=None if aa is None else aa.low,
        aa_high=None if aa is None else aa.high,
        quick=facts.quick,
        existing=entry.case.existing,
        reference=entry.shown.reference,
        uncommitted=entry.shown.uncommitted,
        commit=entry.commit,
        recorded_at=entry.recorded_at,
        command=facts.command,
        recorded=found,
    )


def _with_expectation(row: Row, expectations: Expectations) -> Row:
    # What no lock describes may hold anything: it is neither expected nor fixed.
    found = None if row.existing else expectations.of(row.in_cell, row.failure_class)
    return row if found is None else replace(row, expectation=found)


def headline(rows: Sequence[Row]) -> str:
    """Return a one-line summary: how many results pass, then the others, the most frequent first.

    A result is a case in a cell.
    """
    if not rows:
        return "no results"
    passing = [row.status for row in rows if row.passes]
    beside = _statuses(status for status in passing if status != "works")
    verb = "passes" if len(passing) == 1 else "pass"
    parts = [f"{len(passing)} {verb}{beside and f' ({beside})'}"] if passing else []
    parts += filter(None, [_statuses(row.status for row in rows if not row.passes)])
    cells = {row.cell for row in rows}
    cases = {(row.workload, row.size, row.variant) for row in rows}
    of = f"{counted(len(cases), 'case')} in {counted(len(cells), 'cell')}"
    return f"{counted(len(rows), 'result')} of {of}: {', '.join(parts)}"


def _statuses(found: Iterable[Status]) -> str:
    counts = Counter(found).most_common()
    return ", ".join(f"{number} {STATUS_WORDS[status]}" for status, number in counts)


# What the project's own code did, before anything was compiled.
OF_THE_PROJECT: Final[frozenset[FailureClass]] = frozenset(
    {"build", "absent", "import", "inputs", "reference", "eager_failed"}
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What the records say of an entry.

    Attributes:
        occurs: Cases that fail as it says.
        fixed: Cases that pass.
        otherwise: Cases that fail in another way, which no entry expects.
        is_unmatched: Whether it covers nothing that was measured.
    """

    entry: Expectation
    occurs: tuple[Row, ...]
    fixed: tuple[Row, ...]
    otherwise: tuple[Row, ...]
    is_unmatched: bool


def standings(expectations: Expectations, rows: Iterable[Row]) -> tuple[Standing, ...]:
    """Return what the rows say of each entry, in the order of the file."""
    measured = _measured(rows)
    found = []
    for entry in expectations.entries:
        here = [row for row in measured if entry.covers(row.in_cell)]
        occurs = tuple(row for row in here if row.failure_class == entry.failure_class)
        fixed = tuple(row for row in here if row.failure_class is None)
        otherwise = tuple(
            row
            for row in here
            if row.failure_class not in (None, entry.failure_class)
            and expectations.of(row.in_cell, row.failure_class) is None
        )
        found.append(Standing(entry, occurs, fixed, otherwise, not here))
    return tuple(found)


def unexpected(expectations: Expectations, rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows that PyTorch failed and no entry expects."""
    failed = (row for row in _measured(rows) if row.is_failure)
    return tuple(row for row in failed if expectations.of(row.in_cell, row.failure_class) is None)


def _measured(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.recorded is not None and not row.existing]
