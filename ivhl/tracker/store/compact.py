"""Pack the records of old commits: nothing of them is lost, and every view reads them as before."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ivhl.errors import ResultsError
from ivhl.records.age import recorded_rank
from ivhl.records.files import without_links, write_whole
from ivhl.tracker.store.reading import PACKED, packed, records_files, unpacked, with_packed

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.tracker.store.index import Index

_NEVER: Final = (False, "")


@dataclass(frozen=True, slots=True)
class Packed:
    """What was packed.

    Attributes:
        files: Number of files.
        before: Their bytes before, ``after`` those now.
    """

    files: int
    before: int
    after: int


def compact(results: Path, index: Index, keep: int) -> Packed:
    """Pack the files of records of all but the newest commits of each cell on each machine.

    Runs look for earlier answers in files that are not packed: the standard library of a cell
    cannot unpack them. With the newest commits that is where unchanged cases are found.

    Args:
        results: Folder of the results.
        index: Its index.
        keep: How many commits of each cell and machine stay as they are.

    Raises:
        ResultsError: If a file cannot be written; it stays as it was, and so do all after it. If one
            is reached through a link, all stay.
    """
    newest: dict[tuple[str, str], dict[str, tuple[bool, str]]] = defaultdict(dict)
    for entry in index.entries:
        commits = newest[entry.case.machine, entry.case.cell]
        commits[entry.commit] = max(commits.get(entry.commit, _NEVER), recorded_rank(entry))
    kept = {
        (machine, f"{commit[:8]}-{cell}.jsonl")
        for (machine, cell), commits in newest.items()
        for commit in sorted(commits, key=lambda c: commits[c], reverse=True)[:keep]
    }
    files = before = after = 0
    for path in [without_links(path, results) for path in records_files(results)[0]]:
        if path.suffix == PACKED or (path.parent.parent.name, path.name) in kept:
            continue
        if not path.is_file():
            raise ResultsError(
                f"{path}: must be a plain file", hint="move what has its name elsewhere"
            )
        files += 1
        before += path.stat().st_size
        after += _pack(path, results)
    return Packed(files, before, after)


def _pack(path: Path, results: Path) -> int:
    """Pack a file, after what is packed of it already; return the size."""
    target = path.with_name(path.name + PACKED)
    try:
        data = with_packed(path)
    except ResultsError as error:
        raise ResultsError(
            f"{path} cannot be packed: {error}", hint="move what is damaged elsewhere"
        ) from error
    form = packed(data)
    if unpacked(form) != data:
        raise ResultsError(
            f"{path}: packing lost something", hint="please report it with the file"
        )
    write_whole(target, form, results)
    if with_packed(path) != data:
        raise ResultsError(
            f"{path} was written to while it was packed",
            hint="run the same command again once no run writes there",
        )
    path.unlink()
    return len(form)
