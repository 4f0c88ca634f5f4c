"""All records of a folder, read line by line: what the index answers, without the index."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from ivhl.errors import ResultsError
from ivhl.records.age import recorded_rank
from ivhl.records.identity import case_of, key_of
from ivhl.records.lines import read_plain
from ivhl.records.reader import records_in
from ivhl.tracker.store.indexing import records_files
from ivhl.tracker.store.records import Problem, latest_of_cases

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ivhl.records.identity import AtCommit
    from ivhl.records.record import RunRecord


@dataclass(frozen=True, slots=True)
class Loaded:
    """The readable records and the problems.

    Attributes:
        records: The latest record of each key.
        replaced: Earlier records of these keys: other runs of the same case.
    """

    records: tuple[RunRecord, ...]
    problems: tuple[Problem, ...]
    replaced: tuple[RunRecord, ...] = ()


def load_records(results: Path) -> Loaded:
    """Return the records under ``results``, the latest of each key, sorted by key.

    Within a file the later line wins, because files are append-only. Between files (results merged
    from another checkout) the later time wins. The order of the file system has no influence.

    Args:
        results: Folder with ``<machine>/records/*.jsonl``; a missing folder has no records.
    """
    problems: list[Problem] = []
    latest: dict[AtCommit, tuple[tuple[tuple[bool, str], str], RunRecord]] = {}
    replaced: list[RunRecord] = []
    paths, unreadable = records_files(results)
    problems += (Problem(folder, None, rule) for folder, rule in unreadable)
    for path in paths:
        in_file: dict[AtCommit, RunRecord] = {}
        for found in _read(path):
            if isinstance(found, Problem):
                problems.append(found)
            else:
                key = key_of(found)
                if key in in_file:
                    replaced.append(in_file[key])
                in_file[key] = found
        for key, record in in_file.items():
            rank = (recorded_rank(record), path.as_posix())
            if key in latest:
                replaced.append(min((rank, record), latest[key], key=itemgetter(0))[1])
            if key not in latest or rank > latest[key][0]:
                latest[key] = (rank, record)
    return Loaded(
        records=tuple(latest[key][1] for key in sorted(latest)),
        problems=tuple(problems),
        replaced=tuple(replaced),
    )


def _read(path: Path) -> Iterable[RunRecord | Problem]:
    try:
        data = read_plain(path)
    except ResultsError as error:
        yield Problem(path, None, str(error))
        return
    for line, found in records_in(data):
        yield Problem(path, line.number, found) if isinstance(found, str) else found


def latest_per_case(
    records: Iterable[RunRecord], commit_order: Sequence[str] = ()
) -> tuple[RunRecord, ...]:
    """Return ``latest_of_cases`` of records."""
    return latest_of_cases(records, case_of, commit_order)
