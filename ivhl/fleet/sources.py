"""Read lines of records from files and folders of other machines."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.records.lines import LARGEST, LONGEST_LINE, MOST_LINES, lines_of
from ivhl.records.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDING = ".jsonl"
_MIB = 2**20
# Of one source; the limits of a file are those of every file of records.
_MOST_FILES = 20_000  # entries of a folder, including other files
_LARGEST_TOTAL = 512 * _MIB


@dataclass(frozen=True, slots=True)
class Refused:
    """A file or line that is refused.

    Attributes:
        place: Source, file and line.
        rule: The broken rule, with the value.
        hint: What to do next.
    """

    place: str
    rule: str
    hint: str


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line that should be a record, and the SHA-256 of its file."""

    place: str
    data: bytes
    file: str = ""


def read_sources(paths: list[Path]) -> Iterator[SourceLine | Refused]:
    """Yield every line that should be a record, and every refusal.

    Args:
        paths: Files of JSON lines, or folders with such files at any depth. Hidden files and
            folders are skipped: a killed run leaves its journals in one.
    """
    for path in paths:
        for found in _files(path):
            yield from [found] if isinstance(found, Refused) else _lines(*found)


def _files(path: Path) -> Iterator[tuple[str, bytes] | Refused]:
    place = printable(str(path))
    try:
        if path.is_dir():
            yield from _folder(path)
        elif not path.exists():
            yield Refused(
                place, "no such file or folder", "name the file or folder of the records"
            )
        elif not path.is_file():
            yield Refused(place, "must be a file or a folder", "give the file of records")
        elif path.suffix == ".zip":
            yield Refused(
                place,
                "must be unpacked: a zip archive is not read",
                "unpack it with unzip -d FOLDER, then import FOLDER",
            )
        else:
            yield _file(path, place)
    except OSError as error:
        yield _unreadable(place, error)


def _file(path: Path, place: str) -> tuple[str, bytes] | Refused:
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        return Refused(
            place,
            f"a file may have {LARGEST // _MIB} MiB, and this file has more",
            "if it is a file of records, split it at a line break",
        )
    return place, data


def _folder(folder: Path) -> Iterator[tuple[str, bytes] | Refused]:
    seen = total = found = 0
    # Left to itself, ``walk`` passes over a folder that it cannot read.
    unreadable: list[OSError] = []
    for parent, folders, names in os.walk(folder, onerror=unreadable.append):
        linked = [name for name in folders if Path(parent, name).is_symlink()]
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted((*names, *linked)):
            path = Path(parent, name)
            place = printable(str(path))
            seen += 1
            if seen > _MOST_FILES:
                yield _over(printable(str(folder)), f"{_MOST_FILES} files")
                return
            if name.startswith(".") or (name not in linked and not name.endswith(ENDING)):
                continue
            if not _is_plain(path):
                yield Refused(
                    place,
                    "must be a plain file or folder, not a link or a device",
                    "copy its target, and import the copy",
                )
                continue
            found += 1
            try:
                total += path.stat().st_size
                if total > _LARGEST_TOTAL:
                    yield _over(printable(str(folder)), f"{_LARGEST_TOTAL // _MIB} MiB of records")
                    return
                yield _file(path, place)
            except OSError as error:
                yield _unreadable(place, error)
    for failed in unreadable:
        yield _unreadable(printable(str(failed.filename)), failed)
    if not found and not unreadable:
        yield Refused(
            printable(str(folder)),
            f"must contain records: files that end in {ENDING}",
            "give the folder of results, or the one given to python -m ivhl.measure --out",
        )


def _unreadable(place: str, error: OSError) -> Refused:
    return Refused(place, f"cannot be read: {error.strerror or error}", "check its permissions")


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # gone meanwhile: reading it says so
        return True


def _over(place: str, limit: str) -> Refused:
    return Refused(
        place,
        f"may have at most {limit}; the rest was not read",
        "import the folders of its machines one by one",
    )


def _lines(place: str, data: bytes) -> Iterator[SourceLine | Refused]:
    digest = hashlib.sha256(data).hexdigest()
    for number, line in enumerate(lines_of(data)):
        where = f"{place}:{line.number}"
        if number >= MOST_LINES:
            yield Refused(
                where,
                f"a file may have {MOST_LINES} records, and this one has more lines; the others "
                "are not read",
                "check whether this is a file of records; if it is, split it",
            )
            return
        if len(line.data) > LONGEST_LINE:
            yield Refused(
                where,
                f"a record may have {LONGEST_LINE // _MIB} MiB (got {len(line.data)} bytes)",
                "check whether this is a file of records",
            )
        else:
            yield SourceLine(where, line.data, digest)
