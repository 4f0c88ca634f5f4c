"""What works where: one row per Python, PyTorch release, workload, size and variant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args

from packaging.version import InvalidVersion, Version

from ivhl.tracker.spread import SHIPPED, VERDICT_CONFIDENCE, Spreads
from ivhl.tracker.store import device_type, is_existing, latest_per_case

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ivhl.records import FailureClass, Interval, RunRecord
    from ivhl.workload import Case, Workload

Status = Literal["works", "slow", "wrong", "unsupported", "unavailable", "failed", "not_run"]
STATUSES: tuple[Status, ...] = get_args(Status)

# Failures that say nothing about the PyTorch release: our mistake, the workload's, or a limit that
# this machine or this run set.
_BLAMELESS: frozenset[FailureClass] = frozenset(
    {"environment", "build", "inputs", "reference", "timeout", "out_of_memory"}
)
_STATUS_OF: dict[FailureClass, Status] = {
    "support_gate": "unsupported",
    "unsupported": "unsupported",
    "unavailable": "unavailable",
    "wrong": "wrong",
}


class CellLike(Protocol):
    """An environment of the matrix (``ivhl.matrix.CellSpec``) as far as it matters here."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def python(self) -> str: ...  # noqa: D102
    @property
    def torch(self) -> str: ...  # noqa: D102


class Series(NamedTuple):
    """What stays the same while Python and PyTorch change."""

    machine: str
    device: str
    workload: str
    size: str
    variant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case in one environment, as it stands now.

    Attributes:
        machine: Empty where nothing has been run on any machine.
        message: Why the status is not ``works``; empty where it is.
        speedup_low: Where another run would be expected, with ``speedup_high``, at 95 %
            (``ivhl.tracker.spread``).
        within_low: Where the rounds of this very run lie, with ``within_high``, at 95 %.
        existing: Whether the environment was there already, and no lock says what is in it.
        record: What the row was made from; ``None`` where nothing was run.
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
    commit: str | None = None
    recorded_at: str | None = None
    command: str | None = None
    record: RunRecord | None = field(default=None, repr=False, compare=False)

    @property
    def series(self) -> Series:
        """The row without Python and PyTorch."""
        return Series(self.machine, self.device, self.workload, self.size, self.variant)

    def to_dict(self) -> dict[str, Any]:
        """Return every field but the record, ready for JSON."""
        names = [name for name in self.__dataclass_fields__ if name != "record"]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Which releases can be used, for one series under one Python.

    Attributes:
        first_good: Oldest release that works.
        last_bad: Newest release that does not, and how.
        good_since: Oldest release from which every one tried works, the newest included.
        undecided: Releases that failed by no fault of theirs, and how.
    """

    series: Series
    python: str
    first_good: str | None
    last_bad: str | None
    last_bad_status: Status | None
    good_since: str | None
    undecided: tuple[tuple[str, FailureClass], ...] = ()


def release_key(version: str) -> tuple[bool, Version, str]:
    """Return a key that sorts versions; what is no version (``nightly``) comes last, by name."""
    try:
        return (False, Version(version), version)
    except InvalidVersion:
        return (True, Version("0"), version)


def python_key(python: str) -> tuple[bool, Version, str]:
    """Return a key that sorts Pythons; a free-threaded one (``3.14t``) follows its twin."""
    unknown, version, _ = release_key(python.removesuffix("t"))
    return (unknown, version, python)


def is_slow(record: RunRecord, spreads: Spreads = SHIPPED) -> bool:
    """Say whether other runs would find the variant slower than eager, too, 99 of 100."""
    another = spreads.another_run(record, confidence=VERDICT_CONFIDENCE)
    return another is not None and another.high < 1


def status_of(record: RunRecord, spreads: Spreads = SHIPPED) -> Status:
    """Return the status that a record gives its case."""
    if record.failure is not None:
        return _STATUS_OF.get(record.failure.failure_class, "failed")
    return "slow" if is_slow(record, spreads) else "works"


def format_speedup(interval: Interval) -> str:
    """Return an estimate with its interval, e.g. ``6.41x [6.20, 6.63]``."""
    return f"{interval.value:.2f}x [{interval.low:.2f}, {interval.high:.2f}]"


def compat_rows(
    records: Iterable[RunRecord],
    *,
    cells: Sequence[CellLike] = (),
    unavailable: Mapping[str, str] | None = None,
    cases: Sequence[Case] = (),
    workloads: Sequence[Workload] = (),
    commit_order: Sequence[str] = (),
    releases: Collection[str] | None = None,
    spreads: Spreads = SHIPPED,
) -> tuple[Row, ...]:
    """Return what works where: the newest record of each case, and the cases that have none.

    On each machine and device that ran anything, every cell is asked for every case that was run
    there in some cell, and for the ``cases`` that apply to the device. But a workload that only
    other machines ran is not asked for: several machines share results, and few of them run
    everything. Nor is one of the other releases, except for what was run with it there, the
    workload at that size. A cell that has records but is no longer in the matrix stays.

    Args:
        records: Records of any commits.
        cells: Cells of the matrix.
        releases: PyTorch releases for which everything is asked; ``None`` means all.
        unavailable: Cell id to why there is nothing to install; a record counts for more.
        cases: Cases that should have been run.
        workloads: What the project asks now; ``retired`` records of it have no row.
        commit_order: Commits, oldest first; see ``latest_per_case``.
        spreads: How far apart runs lie.
    """
    records = tuple(records)
    gone = set(map(id, retired(records, workloads)))
    newest = latest_per_case((r for r in records if id(r) not in gone), commit_order)
    names = {cell.id: (cell.python, cell.torch) for cell in cells}
    for record in newest:
        names.setdefault(record.cell.id, (record.cell.python, record.cell.torch))
    # Where a machine has both, the row is the locked cell's: it can be made again anywhere.
    bare_first = sorted(newest, key=is_existing, reverse=True)
    found = {(record.cell.id, _series_of(record)): record for record in bare_first}
    places = sorted({(r.machine.name, device_type(r)) for r in newest}) or [("", "cpu")]
    ran = {(r.machine.name, device_type(r), r.workload) for r in newest}
    ran_anywhere = {workload for *_, workload in ran}
    wanted = {series for _, series in found} | {
        Series(machine, device, case.workload.name, case.size, case.variant.name)
        for machine, device in places
        for case in cases
        if device in case.variant.devices
        and (
            (machine, device, case.workload.name) in ran or case.workload.name not in ran_anywhere
        )
    }
    tried = {(r.machine.name, device_type(r), r.workload, r.size, r.cell.torch) for r in newest}
    locked = {cell.id for cell in cells} | {r.cell.id for r in newest if not is_existing(r)}
    found_in = {(r.machine.name, device_type(r), r.cell.id) for r in newest}
    rows = []
    for series in wanted:
        for cell_id, (python, torch) in names.items():
            here = (series.machine, series.device)
            what = (*here, series.workload, series.size, torch)
            if releases is not None and torch not in releases and what not in tried:
                continue
            if cell_id not in locked and (*here, cell_id) not in found_in:
                continue
            known = found.get((cell_id, series))
            rows.append(
                _empty_row(cell_id, python, torch, series, (unavailable or {}).get(cell_id))
                if known is None
                else _row(known, spreads)
            )
    return tuple(sorted(rows, key=_row_key))


def retired(records: Iterable[RunRecord], workloads: Sequence[Workload]) -> tuple[RunRecord, ...]:
    """Return the records of cases that the project no longer has; none if ``workloads`` is empty.

    They are history: nobody can run them again, so they say nothing about what works now.
    """
    asked = {
        (workload.name, workload.version, variant.name, device)
        for workload in workloads
        for variant in workload.variants
        for device in variant.devices
    }
    return tuple(
        record
        for record in records
        if workloads
        and (record.workload, record.workload_version, record.variant, device_type(record))
        not in asked
    )


def _series_of(record: RunRecord) -> Series:
    return Series(
        record.machine.name, device_type(record), record.workload, record.size, record.variant
    )


def _row_key(row: Row) -> tuple[object, ...]:
    return (*row.series, python_key(row.python), release_key(row.torch), row.cell)


def _empty_row(cell_id: str, python: str, torch: str, series: Series, reason: str | None) -> Row:
    return Row(
        python=python,
        torch=torch,
        cell=cell_id,
        **series._asdict(),
        status="not_run" if reason is None else "unavailable",
        failure_class=None if reason is None else "unavailable",
        message="no record of it" if reason is None else reason,
    )


def _row(record: RunRecord, spreads: Spreads) -> Row:
    status = status_of(record, spreads)
    speedup, aa, failure = record.speedup, record.aa, record.failure
    another = spreads.another_run(record)
    message = "" if failure is None else failure.message
    if status == "slow" and another is not None:
        message = f"slower than eager: {format_speedup(another)}"
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
        commit=record.commit,
        recorded_at=record.recorded_at,
        command=record.command,
        record=record,
    )


def support(rows: Iterable[Row]) -> tuple[Support, ...]:
    """Return, per series and Python, the first good and the last bad PyTorch release.

    A case that was not run decides nothing, and neither does one that failed by no fault of
    PyTorch.
    """
    groups: dict[tuple[Series, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.series, row.python), []).append(row)
    return tuple(
        _support(series, python, group)
        for (series, python), group in sorted(
            groups.items(), key=lambda item: (item[0][0], python_key(item[0][1]))
        )
    )


def _support(series: Series, python: str, rows: Iterable[Row]) -> Support:
    run = sorted(
        (row for row in rows if row.status != "not_run"), key=lambda row: release_key(row.torch)
    )
    tried = [row for row in run if not _is_blameless(row)]
    good = [row for row in tried if row.status == "works"]
    bad = [row for row in tried if row.status != "works"]
    since = None
    for row in reversed(tried):
        if row.status != "works":
            break
        since = row.torch
    return Support(
        series=series,
        python=python,
        first_good=good[0].torch if good else None,
        last_bad=bad[-1].torch if bad else None,
        last_bad_status=bad[-1].status if bad else None,
        good_since=since,
        undecided=tuple(
            (row.torch, row.failure_class)
            for row in run
            if row.failure_class is not None and _is_blameless(row)
        ),
    )


def _is_blameless(row: Row) -> bool:
    """Say whether the case failed by no fault of PyTorch; a SIGKILL comes from outside."""
    killed = row.record and row.record.failure and row.record.failure.exception == "SIGKILL"
    return row.failure_class in _BLAMELESS or bool(killed)
