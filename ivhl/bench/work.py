"""Split the work over a fleet or the jobs of GitHub Actions, less what is already measured."""

from __future__ import annotations

import json
import re
import shlex
from collections import deque
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from ivhl.errors import SpecError
from ivhl.git import commits_of_same_code, files_at
from ivhl.matrix.locks import lock_state
from ivhl.records.answers import is_final
from ivhl.records.identity import case_of
from ivhl.records.reader import records_in
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import case_name, device_type, grouped_by, newest_by

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec
    from ivhl.records.record import RunRecord
    from ivhl.workload import Case


_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One share of the work of a fleet, the ``index``-th (from 1) of ``count``."""

    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Work:
    """One workload in one cell, the smallest unit that a share can hold.

    Attributes:
        cases: Cases of the workload to measure.
        seconds: Expected duration of all that the share was made of; of a case 1 if no record gives
            one.
    """

    cell: CellSpec
    workload: str
    cases: tuple[Case, ...]
    seconds: float


def parse_shard(text: str) -> Shard:
    """Parse a share such as ``2/3``.

    Raises:
        SpecError: If it is not ``I/N`` with I from 1 to N.
    """
    match = _SHARD.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise SpecError(
            f"--shard: expected I/N with I from 1 to N (got {text!r})",
            hint="e.g. --shard 2/3 for the second of three machines",
        )
    return Shard(int(match[1]), int(match[2]))


def in_turns(commits: Sequence[str]) -> tuple[str, ...]:
    """Return commits in the order in which a range tells most: newest, oldest, middle, quarters, ...

    Args:
        commits: In the order of the history.
    """
    order = dict.fromkeys((*commits[:1], *commits[-1:]))
    gaps = deque([(0, len(commits) - 1)])
    while gaps:
        low, high = gaps.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            order[commits[middle]] = None
            gaps += [(low, middle), (middle, high)]
    return tuple(order)


def records_at(root: Path, commit: str) -> tuple[RunRecord, ...]:
    """Return the records in ``results/`` of a commit.

    The working tree's records would not do: every machine of a fleet must compute the same split,
    including one that has measured part of its share and starts again.

    Raises:
        SpecError: If git does not know the commit.
    """
    found = (
        record
        for data in files_at(root, commit, "results", ".jsonl").values()
        for _, record in records_in(data)
    )
    # `ivhl results` reports what is no record; here only an estimate is lost.
    return tuple(record for record in found if not isinstance(record, str))


def list_work(
    cells: Iterable[CellSpec],
    cases: Sequence[Case],
    records: Iterable[RunRecord],
    *,
    device: str,
) -> tuple[Work, ...]:
    """Return every workload in every cell with its expected duration.

    The estimate of a case is the median duration of its records in this cell, else in any cell,
    else the median over all cases, else 1.

    Args:
        cells: Cells to measure in.
        cases: Cases to measure in each cell.
        records: Earlier records, of any machine.
        device: Device type.
    """
    took: dict[tuple[str, ...], list[float]] = {}
    usable = [r for r in records if device_type(r) == device and _says_how_long(r)]
    for record in usable:
        name = case_name(record)
        for key in ((record.cell.id, name), (name,), ()):
            took.setdefault(key, []).append(record.duration_s)
    expected = {key: median(times) for key, times in took.items()}

    def estimate(cell: CellSpec, case: Case) -> float:
        keys: tuple[tuple[str, ...], ...] = ((cell.id, case.name), (case.name,), ())
        return next((expected[key] for key in keys if key in expected), 1.0)

    groups = grouped_by(cases, lambda case: case.workload.name)
    return tuple(
        Work(cell, workload, tuple(group), sum(estimate(cell, case) for case in group))
        for cell in cells
        for workload, group in groups.items()
    )


def _says_how_long(record: RunRecord) -> bool:
    # Duration 0 means that the cell was not installed. An unavailable cell always takes 0; a cell
    # that failed to install would take longer next time, so its record says nothing.
    failure = record.failure
    return (record.duration_s > 0 and not record.conditions.quick) or (
        failure is not None and failure.failure_class == "unavailable"
    )


def take_shard(work: Sequence[Work], shard: Shard) -> tuple[Work, ...]:
    """Return one share of the work, in the given order.

    Assigns the longest piece first, each to the share with the least work so far. Every piece is
    in exactly one share, and the split depends only on the arguments.

    Source:
        R. L. Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17 (1969),
        section 4: the longest share is at most 4/3 - 1/(3N) times the best possible one.
    """
    shares = [0.0] * shard.count
    mine = set()
    order = sorted(work, key=lambda one: (-one.seconds, one.cell.id, one.workload))
    for one in order:
        index = min(range(shard.count), key=lambda i: (shares[i], i))
        shares[index] += one.seconds
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
    """Return the stale work: the cases without a valid final record.

    A record is valid for a case if it has one of the commits, the cell's current lock and the
    workload's current version, is final (``answers.is_final``), was not measured in a container,
    and is the newest such record on its machine.

    Args:
        work: Work to filter.
        records: All records.
        locks: Cell to the sha256 of its lock; ``None`` if the cell has no lock yet.
        commits: Full hashes of the commits with the code in question.
        device: Device type.
        machine: Machine whose records count; ``None`` means any.
    """
    newest = newest_by(
        (
            record
            for record in records
            if record.commit in commits
            and device_type(record) == device
            and machine in (None, record.machine.name)
            and record.cell.lock_sha256 is not None
            and record.cell.lock_sha256 == locks.get(record.cell.id)
        ),
        case_of,
    )
    answered = {
        (one.cell, one.name, one.workload_version)
        for one, record in newest.items()
        if record.conditions.image is None
        and is_final(record.failure)
        and not record.conditions.quick
    }

    def left(one: Work) -> tuple[Case, ...]:
        key = one.cell.id
        return tuple(c for c in one.cases if (key, c.name, c.workload.version) not in answered)

    return tuple(replace(one, cases=left(one)) for one in work if left(one))


def cases_to_measure(
    root: Path,
    cells: Sequence[CellSpec],
    cases: Sequence[Case],
    *,
    shard: Shard | None,
    stale: bool,
    commit: str,
    device: str,
    machine: str | None,
) -> dict[str, tuple[Case, ...]]:
    """Return the cases to measure, per cell id.

    Args:
        root: Root of the project.
        cells: Cells of all shares.
        cases: Cases for each of them.
        shard: The share; ``None`` for all of it.
        stale: Whether to leave out cases with a final record of the commit.
        commit: Full hash.
        device: Device type.
        machine: Its records count as measured; ``None``: records of every machine do.

    Raises:
        SpecError: If git does not know the commit.
    """
    work = list_work(cells, cases, records_at(root, commit), device=device)
    if shard is not None:
        work = take_shard(work, shard)
    if stale:
        index = open_index(root / "results")
        records = index.read(index.entries)
        work = leave_out_measured(
            work,
            records,
            locks={cell.id: lock_state(root, cell).sha256 for cell in cells},
            commits=commits_of_same_code(root, commit, {record.commit for record in records}),
            device=device,
            machine=machine,
        )
    found: dict[str, tuple[Case, ...]] = {}
    for one in work:
        found[one.cell.id] = found.get(one.cell.id, ()) + one.cases
    return found


# GitHub starts at most this many jobs from one matrix.
_GITHUB_JOBS = 256


def github_jobs(
    cells: Sequence[CellSpec],
    work: Mapping[str, Sequence[Case]],
    every: Sequence[Case],
    options: Sequence[tuple[str, str | None]],
) -> str:
    """Return a GitHub Actions matrix: one line of JSON with a job per cell.

    Args:
        cells: Cells that get a job.
        work: Cases to measure, per cell id.
        every: Cases that a job measures without ``--workload``; empty to always name workloads.
        options: Options of every job; those with their default are left out.

    Raises:
        SpecError: If there are more jobs than GitHub starts.
    """
    if len(cells) > _GITHUB_JOBS:
        raise SpecError(
            f"--format github: a matrix may have at most {_GITHUB_JOBS} jobs (got {len(cells)})",
            hint="select fewer cells: --tier default, --torch, --python or --shard",
        )
    given = [
        word
        for name, value in options
        if value not in (None, "cpu", "HEAD")
        for word in (name, str(value))
    ]
    include = []
    for cell in cells:
        names = dict.fromkeys(case.workload.name for case in work[cell.id])
        words = ["--torch", cell.torch, *given]
        if len(work[cell.id]) != len(every):
            words += [word for name in names for word in ("--workload", name)]
        entry = {"cell": cell.id, "python": cell.python, "torch": cell.torch}
        include.append(entry | {"arguments": shlex.join(words)})
    return json.dumps({"include": include}, separators=(",", ":"))
