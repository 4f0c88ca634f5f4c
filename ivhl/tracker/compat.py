"""Compatibility: one row per Python, PyTorch release, workload, size and variant."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from packaging.version import Version

from ivhl.tracker.expectations import Expectation, Expectations
from ivhl.tracker.spread import SHIPPED, VERDICT_CONFIDENCE, Spreads
from ivhl.tracker.store import device_type, is_existing, latest_per_case
from ivhl.tracker.wording import STATUS_WORDS, Status, counted, eager_frames, times

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ivhl.records.record import FailureClass, Interval, Reference, RunRecord
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


class CellLike(Protocol):
    """The attributes of a matrix cell (``ivhl.matrix.CellSpec``) that this module reads."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def python(self) -> str: ...  # noqa: D102
    @property
    def torch(self) -> str: ...  # noqa: D102


# Of ``compat_json``; docs/track.md has the fields.
COMPAT_SCHEMA: Final = "ivhl.compat/1"


def compat_json(rows: Iterable[Row]) -> str:
    """Return the rows as JSON for programs, a line for each."""
    lines = ",\n".join(json.dumps(row.to_dict(), allow_nan=False) for row in rows)
    return f'{{"schema": "{COMPAT_SCHEMA}", "rows": [\n{lines}\n]}}\n'


class RowSeries(NamedTuple):
    """What the rows of one table or chart share, while Python and PyTorch vary."""

    machine: str
    device: str
    workload: str
    size: str
    variant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The current state of one case in one cell.

    Attributes:
        machine: Empty if no machine has run anything.
        message: Why the status is not ``works``; empty if it is.
        speedup_low: With ``speedup_high``, the 95 % interval for another run
            (``ivhl.tracker.spread``).
        within_low: With ``within_high``, the 95 % interval from the rounds of this run.
        existing: Whether it was measured in an existing environment, which no lock describes.
        reference: What the outputs were judged by.
        uncommitted: Whether the working tree differed from the commit.
        expectation: The known failure that this is; or, of a case that passes, the entry that still
            expects it to fail.
        record: The record that the row shows; ``None`` if the case was not run.
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
    record: RunRecord | None = field(default=None, repr=False, compare=False)

    @property
    def series(self) -> RowSeries:
        """The series that the row belongs to."""
        return RowSeries(self.machine, self.device, self.workload, self.size, self.variant)

    def to_dict(self) -> dict[str, Any]:
        """Return every field but the record, and what was not compiled, ready for JSON."""
        names = [
            name for name in self.__dataclass_fields__ if name not in ("record", "expectation")
        ]
        entry = self.expectation
        about = entry and {
            "class": entry.failure_class,
            "reason": entry.reason,
            "link": entry.link,
        }
        facts = self.record and self.record.compile
        compiling = {
            "graph_breaks": facts and sum(one.count for one in facts.graph_breaks),
            "eager_frames": facts and eager_frames(facts),
            "recompiles": facts and sum(one.count for one in facts.recompiles),
        }
        return {name: getattr(self, name) for name in names} | compiling | {"expectation": about}

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
        decided = self.failure_class not in (None, "unavailable") and self.record is not None
        return decided and not _is_blameless(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """The releases with which a case passes, for one series under one Python.

    Attributes:
        first_good: Oldest release with which it passes.
        last_bad: Newest release with which it does not.
        last_bad_status: Status of ``last_bad``.
        good_since: Oldest release from which it passes with every one tried, the newest included.
        slow: Releases with which it passes and is slower than eager.
        passed: How many releases it passes with.
        undecided: Releases with a failure that PyTorch did not cause, with its class.
        not_run: Releases that were not run, of which nothing is known.
    """

    series: RowSeries
    python: str
    first_good: str | None
    last_bad: str | None
    last_bad_status: Status | None
    good_since: str | None
    slow: tuple[str, ...] = ()
    passed: int = 0
    undecided: tuple[tuple[str, FailureClass], ...] = ()
    not_run: tuple[str, ...] = ()


@lru_cache(maxsize=4096)  # every table sorts by it, again and again
def release_key(version: str) -> tuple[bool, Version, str]:
    """Return a key that sorts versions; other names (``nightly``) sort last, by name."""
    try:
        return (False, Version(version), version)
    except ValueError:  # no version, or one with thousands of digits
        return (True, Version("0"), version)


def newest_release(releases: Iterable[str]) -> str:
    """Return the newest release; empty if there is none. A nightly is it only among nightlies."""

    def key(release: str) -> tuple[bool, tuple[bool, Version, str]]:
        unknown, version, _ = order = release_key(release)
        return not (unknown or version.is_prerelease), order

    return max(releases, key=key, default="")


def python_key(python: str) -> tuple[bool, Version, str]:
    """Return a key that sorts Pythons; ``3.14t`` (free-threaded) follows ``3.14``."""
    unknown, version, _ = release_key(python.removesuffix("t"))
    return (unknown, version, python)


def is_free_threaded(python: str) -> bool:
    """Return whether a Python is a free-threaded build: another one of its version, not a newer."""
    return python.endswith("t")


def status_of(record: RunRecord, spreads: Spreads = SHIPPED) -> Status:
    """Return the status that a record gives its case.

    *slow*: 99 of 100 other runs would find the variant slower than eager. *noisy*: this run did, and
    others may not; or even one slower by 1.3x would not show.
    """
    if record.failure is not None:
        return STATUS_OF.get(record.failure.failure_class, "failed")
    another = spreads.another_run(record, confidence=VERDICT_CONFIDENCE)
    if record.speedup is None or another is None or another.low >= 1:
        return "works"
    if another.high < 1:
        return "slow"
    return "noisy" if record.speedup.high < 1 or another.low < 1 / _WIDE else "works"


def format_speedup(interval: Interval) -> str:
    """Return an estimate with its interval, e.g. ``6.41x [6.20, 6.63]``."""
    low, high = (times(bound)[:-1] for bound in (interval.low, interval.high))
    return f"{times(interval.value)} [{low}, {high}]"


def compat_rows(
    records: Iterable[RunRecord],
    *,
    cells: Sequence[CellLike] = (),
    unavailable: Mapping[str, str] | None = None,
    cases: Sequence[Case] = (),
    workloads: Sequence[Workload] = (),
    commit_order: Sequence[str] = (),
    releases: Collection[str] | None = None,
    pythons: Collection[str] | None = None,
    spreads: Spreads = SHIPPED,
    expectations: Expectations = NONE_EXPECTED,
) -> tuple[Row, ...]:
    """Return a row per expected case and cell: its newest record, or the status ``not_run``.

    Expected are, for each machine and device with records and for each cell:

    - every case that the machine ran in some cell;
    - those of ``cases`` that apply to the device, if the machine ran the workload; if no machine
      did, they are expected of the one that ran most on that device: 150 machines with a record
      each are not 150 times all that was never run.

    A release outside ``releases`` gets rows only for a workload and size that the machine ran with
    it, a Python outside ``pythons`` only if the machine ran something with it. A cell with records
    that is no longer in the matrix keeps its rows. A machine and device that measured in existing
    environments only have rows for what was measured there.

    Args:
        records: Records of any commits.
        cells: Cells of the matrix.
        releases: PyTorch releases for which all cases are expected; ``None`` means all.
        pythons: Pythons that every machine is expected to have; ``None`` means all.
        unavailable: Cell id to why nothing can be installed; a record takes precedence.
        cases: Cases that should have been run.
        workloads: Current workloads of the project; ``retired`` records have no row.
        commit_order: Commits, oldest first; see ``latest_per_case``.
        spreads: Learnt differences between runs.
        expectations: Known failures.
    """
    records = tuple(records)
    gone = set(map(id, retired(records, workloads)))
    newest = latest_per_case((r for r in records if id(r) not in gone), commit_order)
    names = {cell.id: (cell.python, cell.torch) for cell in cells}
    for record in newest:
        names.setdefault(record.cell.id, (record.cell.python, record.cell.torch))
    # A locked cell takes precedence over an existing environment: it can be reproduced anywhere.
    locked_last = sorted(newest, key=is_existing, reverse=True)
    found = {(record.cell.id, _series_of(record)): record for record in locked_last}
    places = sorted({(r.machine.name, device_type(r)) for r in newest}) or [("", "cpu")]
    in_cells = {(r.machine.name, device_type(r)) for r in newest if not is_existing(r)}
    ran = {(r.machine.name, device_type(r), r.workload) for r in newest}
    ran_anywhere = {workload for *_, workload in ran}
    homes = _homes(r for r in newest if not is_existing(r)) if newest else {"cpu": ""}
    wanted = {series for _, series in found} | {
        RowSeries(machine, device, case.workload.name, case.size, case.variant.name)
        for machine, device in places
        for case in cases
        if device in case.variant.devices
        and ((machine, device) in in_cells or not newest)
        and (
            (machine, device, case.workload.name) in ran
            or (case.workload.name not in ran_anywhere and homes.get(device) == machine)
        )
    }
    tried = {(r.machine.name, device_type(r), r.workload, r.size, r.cell.torch) for r in newest}
    has_run = {(r.machine.name, device_type(r), r.cell.python) for r in newest}
    locked = {cell.id for cell in cells} | {r.cell.id for r in newest if not is_existing(r)}
    rows = []
    for series in wanted:
        for cell_id, (python, torch) in names.items():
            here = (series.machine, series.device)
            what = (*here, series.workload, series.size, torch)
            if releases is not None and torch not in releases and what not in tried:
                continue
            if pythons is not None and python not in pythons and (*here, python) not in has_run:
                continue
            is_expected = cell_id in locked and (here in in_cells or not newest)
            known = found.get((cell_id, series))
            if not is_expected and known is None:
                continue
            rows.append(
                _empty_row(cell_id, python, torch, series, (unavailable or {}).get(cell_id))
                if known is None
                else _with_expectation(_row(known, spreads), expectations)
            )
    return tuple(sorted(rows, key=_row_key))


def _homes(in_cells: Iterable[RunRecord]) -> Mapping[str, str]:
    """Return, for each device, the machine with most of these records."""
    counts = Counter((record.machine.name, device_type(record)) for record in in_cells)
    homes: dict[str, str] = {}
    for machine, device in sorted(counts, key=lambda place: (-counts[place], place)):
        homes.setdefault(device, machine)
    return homes


def declared_cases(workloads: Sequence[Workload]) -> frozenset[tuple[str, int, str, str]]:
    """Return name, version, variant and device of every case that the project has."""
    return frozenset(
        (workload.name, workload.version, variant.name, device)
        for workload in workloads
        for variant in workload.variants
        for device in variant.devices
    )


def retired(records: Iterable[RunRecord], workloads: Sequence[Workload]) -> tuple[RunRecord, ...]:
    """Return the records of cases that the project no longer has; none if ``workloads`` is empty.

    These cases cannot be measured again, so the tables leave them out.
    """
    declared = declared_cases(workloads)
    return tuple(
        record
        for record in records
        if workloads
        and (record.workload, record.workload_version, record.variant, device_type(record))
        not in declared
    )


def _series_of(record: RunRecord) -> RowSeries:
    return RowSeries(
        record.machine.name, device_type(record), record.workload, record.size, record.variant
    )


def _row_key(row: Row) -> tuple[object, ...]:
    return (*row.series, python_key(row.python), release_key(row.torch), row.cell)


def _empty_row(
    cell_id: str, python: str, torch: str, series: RowSeries, reason: str | None
) -> Row:
    return Row(
        python=python,
        torch=torch,
        cell=cell_id,
        **series._asdict(),
        status="not_run" if reason is None else "unavailable",
        failure_class=None if reason is None else "unavailable",
        message="no record" if reason is None else reason,
    )


def _row(record: RunRecord, spreads: Spreads) -> Row:
    status = status_of(record, spreads)
    speedup, aa, failure = record.speedup, record.aa, record.failure
    another = spreads.another_run(record)
    message = "" if failure is None else failure.message
    if status in ("slow", "noisy") and another is not None:
        what = "slower than eager" if status == "slow" else "too noisy to say whether slower"
        message = f"{what}: {format_speedup(another)}"
        if aa is not None:
            message += f"; noise alone gives {format_speedup(aa)}"
    return Row(
        python=record.cell.python,
        torch=record.cell.torch,
        cell=record.cell.id,
        **_series_of(record)._asdict(),
        status=status,
        failure_class=None if failure is None else failure.failure_class,
        message=message,
        speedup=None if speedup is None else speedup.value,
        speedup_low=None if another is None else another.low,
        speedup_high=None if another is None else another.high,
        within_low=None if speedup is None else speedup.low,
        within_high=None if speedup is None else speedup.high,
        aa_low=None if aa is None else aa.low,
        aa_high=None if aa is None else aa.high,
        quick=record.conditions.quick,
        existing=is_existing(record),
        reference=record.reference,
        uncommitted=record.uncommitted,
        commit=record.commit,
        recorded_at=record.recorded_at,
        command=record.command,
        record=record,
    )


def _with_expectation(row: Row, expectations: Expectations) -> Row:
    # What no lock describes may hold anything: it is neither expected nor fixed.
    found = None if row.existing else expectations.of(row, row.failure_class)
    return row if found is None else replace(row, expectation=found)


def support(rows: Iterable[Row]) -> tuple[Support, ...]:
    """Return, per series and Python, the first good and the last bad PyTorch release.

    Ignores cases that were not run, and failures that PyTorch did not cause.
    """
    groups: dict[tuple[RowSeries, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.series, row.python), []).append(row)
    return tuple(
        _support(series, python, group)
        for (series, python), group in sorted(
            groups.items(), key=lambda item: (item[0][0], python_key(item[0][1]))
        )
    )


def _support(series: RowSeries, python: str, rows: Iterable[Row]) -> Support:
    ordered = sorted(rows, key=lambda row: release_key(row.torch))
    run = [row for row in ordered if row.status != "not_run"]
    tried = [row for row in run if not _is_blameless(row)]
    good = [row for row in tried if row.passes]
    bad = [row for row in tried if not row.passes]
    since = None
    for row in reversed(tried):
        if not row.passes:
            break
        since = row.torch
    return Support(
        series=series,
        python=python,
        first_good=good[0].torch if good else None,
        last_bad=bad[-1].torch if bad else None,
        last_bad_status=bad[-1].status if bad else None,
        good_since=since,
        slow=tuple(row.torch for row in good if row.status == "slow"),
        passed=len(good),
        undecided=tuple(
            (row.torch, row.failure_class)
            for row in run
            if row.failure_class is not None and _is_blameless(row)
        ),
        not_run=tuple(row.torch for row in ordered if row.status == "not_run"),
    )


def _is_blameless(row: Row) -> bool:
    """Return whether PyTorch did not cause the failure; a SIGKILL comes from outside."""
    killed = row.record and row.record.failure and row.record.failure.exception == "SIGKILL"
    return row.failure_class in _BLAMELESS or bool(killed)


def headline(rows: Sequence[Row]) -> str:
    """Return a one-line summary: how many cases pass, then the others, the most frequent first."""
    if not rows:
        return "no cases"
    passing = [row.status for row in rows if row.passes]
    beside = _statuses(status for status in passing if status != "works")
    verb = "passes" if len(passing) == 1 else "pass"
    parts = [f"{len(passing)} {verb}{beside and f' ({beside})'}"] if passing else []
    parts += filter(None, [_statuses(row.status for row in rows if not row.passes)])
    cells = {row.cell for row in rows}
    return f"{counted(len(rows), 'case')} in {counted(len(cells), 'cell')}: {', '.join(parts)}"


def _statuses(found: Iterable[Status]) -> str:
    counts = Counter(found).most_common()
    return ", ".join(f"{number} {STATUS_WORDS[status]}" for status, number in counts)


def support_sentence(found: Support) -> str:
    """Return with which releases a case passes, in one line."""
    undecided = ", ".join(f"{torch} ({name.replace('_', ' ')})" for torch, name in found.undecided)
    slow = "all of them" if len(found.slow) == found.passed else ", ".join(found.slow)
    return (
        _decided(found)
        + (f"; slower than eager in {slow}" if found.slow else "")
        + (f"; undecided: {undecided}" if undecided else "")
    )


def _decided(found: Support) -> str:
    bad = f"{found.last_bad} ({STATUS_WORDS[found.last_bad_status or 'failed']})"
    if found.first_good is None and found.last_bad is None:
        return "nothing decided yet"
    if found.first_good is None:
        # What was not run may be good.
        none = "none good of those run" if found.not_run else "no good release"
        unknown = f"; not run: {', '.join(found.not_run)}" if found.not_run else ""
        return f"{none}; last bad {bad}{unknown}"
    if found.last_bad is None:
        return f"good in every release tried, since {found.first_good}"
    if found.good_since is None:
        return f"first good {found.first_good}; bad again: {bad}"
    if found.good_since == found.first_good:
        return f"first good {found.first_good}; last bad {bad}"
    return f"first good {found.first_good}; last bad {bad}; good again since {found.good_since}"
