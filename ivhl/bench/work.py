"""What there is to measure: split over a fleet, and less what is measured already."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Literal

from ivhl.errors import SpecError
from ivhl.matrix.repository import files_at
from ivhl.measure.runner import is_final
from ivhl.tracker.store import device_type, parse_record
from ivhl.workload import core_cases, full_cases, select_cases

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec
    from ivhl.records import RunRecord
    from ivhl.workload import Case, Workload

Suite = Literal["core", "full"]

_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One share of the work of a fleet, the ``index``-th (from 1) of ``count``."""

    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Work:
    """A workload in a cell: what is never split further.

    Attributes:
        cases: Its sizes and variants that are wanted.
        seconds: How long each case is expected to take; 1 each where nothing was measured.
    """

    cell: CellSpec
    workload: str
    cases: tuple[Case, ...]
    seconds: tuple[float, ...]

    @property
    def total_s(self) -> float:
        """How long all of it is expected to take."""
        return sum(self.seconds)


def choose_cases(
    workloads: Sequence[Workload],
    *,
    names: Sequence[str] = (),
    size: str | None = None,
    variants: Sequence[str] = (),
    device: str = "cpu",
    suite: Suite | None = None,
) -> tuple[Case, ...]:
    """Return the cases to run, of several variants if several are named; see ``select_cases``.

    Args:
        workloads: Every workload there is.
        names: Workloads wanted; empty means all.
        size: Size wanted; ``None`` means each workload's default, and with ``full`` every size.
        variants: Variants wanted; empty means all.
        device: Device type.
        suite: ``core`` or ``full``, less what was not named; see ``suite_of`` for ``None``.

    Raises:
        UnknownNameError: If a name is in no workload; lists the nearest.
        SpecError: If the suite has none of what was named.
    """
    every = select_cases(workloads, names=names, size=size, device=device)
    for variant in variants:  # refuses what is unknown
        select_cases(workloads, names=names, size=size, variant=variant, device=device)
    suite = suite_of(suite, names=names, size=size, variants=variants)
    if suite == "core":
        core = core_cases(workloads, device)
        every = tuple(
            replace(c, size=size or c.size) for c in core if size in {None, *c.workload.sizes}
        )
    elif suite == "full":
        every = tuple(c for c in full_cases(workloads, device) if size in (None, c.size))
    chosen = tuple(
        case
        for case in every
        if (not names or case.workload.name in names)
        and (not variants or case.variant.name in variants)
    )
    if suite is not None and not chosen:
        named = " ".join([*names, *filter(None, [size]), *variants])
        raise SpecError(
            f"--suite {suite} has no case of {named or 'any workload'} on {device}",
            hint="a workload, size or variant that is named without --suite is measured in any case",
        )
    return chosen


def suite_of(
    suite: Suite | None, *, names: Sequence[str], size: str | None, variants: Sequence[str]
) -> Suite | None:
    """Return the suite that is measured: ``core`` where none is asked for and nothing is named.

    Returns:
        ``None`` where just what is named is measured.
    """
    return suite or (None if names or size or variants else "core")


def parse_shard(text: str) -> Shard:
    """Return the share that a text like ``2/3`` means.

    Raises:
        SpecError: If it is not of the form ``I/N`` with I from 1 to N.
    """
    match = _SHARD.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise SpecError(
            f"--shard: must be I/N with I from 1 to N (got {text!r})",
            hint="the second of three machines takes --shard 2/3",
        )
    return Shard(int(match[1]), int(match[2]))


def records_at(root: Path, commit: str) -> tuple[RunRecord, ...]:
    """Return the records that a commit holds, in ``results/``.

    Not those of the working tree: every machine of a fleet must come to the same split, also the
    one that has measured a part of its share and begins anew.

    Raises:
        SpecError: If git has no such commit.
    """
    records = []
    for data in files_at(root, commit, "results", ".jsonl").values():
        for line in data.splitlines():
            try:
                records.append(parse_record(line))
            except ValueError:
                continue  # named by whoever shows results; here it is only an estimate less
    return tuple(records)


def list_work(
    cells: Iterable[CellSpec],
    cases: Sequence[Case],
    records: Iterable[RunRecord],
    *,
    device: str,
) -> tuple[Work, ...]:
    """Return every workload in every cell, with how long it is expected to take.

    The estimate of a case is the median of what it took in this cell, else in any cell, else the
    median of all cases, else 1.

    Args:
        cells: Where to measure.
        cases: What to measure in each.
        records: What was measured before, on any machine.
        device: Device type.
    """
    took: dict[tuple[str, ...], list[float]] = {}
    usable = [r for r in records if device_type(r) == device and _says_how_long(r)]
    for record in usable:
        name = f"{record.workload}/{record.size}/{record.variant}"
        for key in ((record.cell.id, name), (name,), ()):
            took.setdefault(key, []).append(record.duration_s)
    expected = {key: median(times) for key, times in took.items()}

    def estimate(cell: CellSpec, case: Case) -> float:
        keys: tuple[tuple[str, ...], ...] = ((cell.id, case.name), (case.name,), ())
        return next((expected[key] for key in keys if key in expected), 1.0)

    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.workload.name, []).append(case)
    return tuple(
        Work(cell, workload, tuple(group), tuple(estimate(cell, case) for case in group))
        for cell in cells
        for workload, group in groups.items()
    )


def _says_how_long(record: RunRecord) -> bool:
    # A cell that could not be made took no time and will take some; one that does not exist, none.
    failure = record.failure
    return record.duration_s > 0 or (
        failure is not None and failure.failure_class == "unavailable"
    )


def take_shard(work: Sequence[Work], shard: Shard) -> tuple[Work, ...]:
    """Return one share, in the order of the whole.

    Longest first, each to the share that has least so far. Every piece is in exactly one share,
    and which one depends on nothing but the arguments.

    Source:
        R. L. Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17 (1969),
        section 4: the longest share is at most 4/3 - 1/(3N) times the best possible one.
    """
    shares = [0.0] * shard.count
    mine = set()
    order = sorted(work, key=lambda one: (-one.total_s, one.cell.id, one.workload))
    for one in order:
        index = min(range(shard.count), key=lambda i: (shares[i], i))
        shares[index] += one.total_s
        if index == shard.index - 1:
            mine.add((one.cell.id, one.workload))
    return tuple(one for one in work if (one.cell.id, one.workload) in mine)


def leave_out_measured(
    work: Iterable[Work],
    records: Iterable[RunRecord],
    *,
    locks: Mapping[str, str | None],
    commits: Collection[str],
    device: str,
    machine: str | None = None,
) -> tuple[Work, ...]:
    """Return what is stale: the cases without a final record as things are now.

    A record answers for a case if it is of one of the commits, of the cell's lock and the
    workload's version as they are now, final (``runner.is_final``) and made in no container, and no
    newer record of the same on its machine is otherwise.

    Args:
        work: What is wanted.
        records: Those that there are.
        locks: Cell to the sha256 of its lock; ``None`` where there is no lock yet.
        commits: Full hashes of those that hold the code in question.
        device: Device type.
        machine: Whose records count; ``None`` means anybody's.
    """
    newest: dict[tuple[str, ...], RunRecord] = {}
    for record in sorted(records, key=lambda record: record.recorded_at):
        known = (
            record.commit in commits
            and device_type(record) == device
            and machine in (None, record.machine.name)
            and record.cell.lock_sha256 is not None
            and record.cell.lock_sha256 == locks.get(record.cell.id)
        )
        if known:
            name = f"{record.workload}/{record.size}/{record.variant}"
            key = (record.cell.id, name, str(record.workload_version), record.machine.name)
            newest[key] = record
    answered = {
        key[:3]
        for key, record in newest.items()
        if record.conditions.image is None
        and is_final(None if record.failure is None else asdict(record.failure))
    }
    left = []
    for one in work:
        kept = [
            (case, seconds)
            for case, seconds in zip(one.cases, one.seconds, strict=True)
            if (one.cell.id, case.name, str(case.workload.version)) not in answered
        ]
        if kept:
            cases, times = zip(*kept, strict=True)
            left.append(replace(one, cases=cases, seconds=times))
    return tuple(left)
