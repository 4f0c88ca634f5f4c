"""Which record answers a case, in the cell as in all that shows or judges records.

The later line of a file counts, since files are append-only and clocks are set back; between the
files of several commits, the later time. ``ivhl.tracker.store`` decides likewise for everything that
shows or judges records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.errors import ResultsError
from ivhl.instrument import version_of
from ivhl.records.age import recorded_rank
from ivhl.records.identity import CaseId, case_of
from ivhl.records.lines import read_plain
from ivhl.records.reader import records_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ivhl.records.record import Failure, RunRecord

# Case and device; commit, cell, lock, threads, instrument, image and flags; and these with the hash
# of the benchmark.
OnDevice = tuple[CaseId, str]
MadeLike = tuple[str, str, str | None, int, str, str | None, tuple[str, ...]]
RunKey = tuple[str, str, str | None, int, str, str | None, tuple[str, ...], str | None]


def newest_keys(path: Path, *, timed: bool = True) -> dict[OnDevice, RunKey]:
    """Return the conditions of each case's newest record, if that record is final.

    With ``timed``, a record of a verdict alone is not.

    Unreadable lines are skipped: the case is measured again, and ``ivhl results`` reports the line.
    """
    found: dict[OnDevice, RunKey] = {}
    for case, made, _ in read_records(path, timed=timed):
        found.pop(case, None)
        if made is not None:
            found[case] = made
    return found


def newest_of_other_commits(
    folder: Path, made_like: MadeLike, *, timed: bool = True
) -> dict[OnDevice, RunRecord]:
    """Return each case's newest final record with sources that was made like this, at any commit.

    Args:
        folder: Folder of the machine's records.
        made_like: The beginning of a ``RunKey``; its commit is not looked at.
        timed: Whether a record of a verdict alone does not do.
    """
    found: dict[OnDevice, RunRecord] = {}
    for path in folder.glob(f"*-{made_like[1]}.jsonl"):
        for case, made, record in read_records(path, timed=timed):
            older = found.get(case)
            if made is None or made[1:-1] != made_like[1:] or not record.sources:
                continue
            if older is None or recorded_rank(record) > recorded_rank(older):
                found[case] = record
    return found


def cold_seconds(results: Path, cell_id: str) -> dict[OnDevice, float]:
    """Return the compile seconds of the records of a cell, from any machine."""
    seconds: dict[OnDevice, float] = {}
    for path in results.glob(f"*/records/*-{cell_id}.jsonl"):
        for case, _, record in read_records(path):
            if record.compile is not None and record.compile.cold_s is not None:
                seconds[case] = record.compile.cold_s
    return seconds


def read_records(
    path: Path, *, timed: bool = False
) -> Iterator[tuple[OnDevice, RunKey | None, RunRecord]]:
    """Yield, for each record of a file, its case key, its run key and the record.

    The run key is ``None`` if the record is not final, comes from an uncommitted tree, or, with
    ``timed``, is a verdict alone, which a later full record replaces. A file that cannot be read,
    or is over a limit, has no records: ``ivhl results`` names it.
    """
    try:
        data = read_plain(path)
    except ResultsError:
        return
    for _, record in records_in(data):
        if isinstance(record, str):
            continue
        cell, conditions = record.cell, record.conditions
        case = case_of(record).case, conditions.device.split()[0]
        made = (
            record.commit,
            cell.id,
            cell.lock_sha256,
            conditions.threads,
            version_of(conditions.instrument),
            conditions.image,
            conditions.flags,
            record.benchmark,
        )
        answers = is_final(record.failure) and not record.uncommitted
        answers = answers and not (timed and conditions.quick)
        yield case, made if answers else None, record


def is_final(failure: Failure | None) -> bool:
    """Return whether measuring again would be expected to give the same result.

    Not final: a cell that could not be installed, and a process killed by someone else or for its
    time or memory limit.
    """
    if failure is None:
        return True
    # The last two depend on limits that another run may set higher.
    passing = ("environment", "build", "unavailable", "timeout", "out_of_memory")
    return failure.failure_class not in passing and failure.exception != "SIGKILL"
