"""Read lines of records from files and folders of other machines."""

from __future__ import annotations

import hashlib
import json
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
EXPORT = "ivhl.benchmarks/1"
_HEAD = 200  # the schema is within the first bytes of an export
_MIB = 2**20
# Of an export, which is read as one document: JSON takes twenty times its bytes. One has 0.2 MiB.
_LARGEST_EXPORT = 8 * _MIB


@dataclass(frozen=True, slots=True)
class ImportLimits:
    """Limits of one source; those of one file are those of every file of records.

    Attributes:
        files: Entries of a folder, including other files.
        file_bytes: Size of one file.
        total_bytes: Size of all files of a source.
        line_bytes: Size of one record.
        lines: Lines of one file that are not blank.
    """

    files: int = 20_000
    file_bytes: int = LARGEST
    total_bytes: int = 512 * _MIB
    line_bytes: int = LONGEST_LINE
    lines: int = MOST_LINES


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


def read_sources(
    paths: list[Path], limits: ImportLimits | None = None
) -> Iterator[SourceLine | Refused]:
    """Yield every line that should be a record, and every refusal.

    Args:
        paths: Files of JSON lines, folders with such files at any depth, or exports of
            ``python -m studies.roofline``. Hidden files and folders are skipped: a killed run leaves
            its journals in one.
        limits: Limits of a source.
    """
    limits = limits or ImportLimits()
    for path in paths:
        for found in _files(path, limits):
            yield from [found] if isinstance(found, Refused) else _lines(*found, limits)


def _files(path: Path, limits: ImportLimits) -> Iterator[tuple[str, bytes] | Refused]:
    place = printable(str(path))
    try:
        if path.is_dir():
            yield from _folder(path, limits)
        elif not path.exists():
            yield Refused(
                place, "no such file or folder", "give the file or folder of the records"
            )
        elif not path.is_file():
            yield Refused(place, "must be a file or a folder", "give the file of records")
        elif path.suffix == ".zip":
            yield Refused(
                place,
                "must be unpacked: a zip archive is not read",
                "import the folder that unzip -d FOLDER makes of it",
            )
        else:
            yield _file(path, place, limits)
    except OSError as error:
        yield _unreadable(place, error)


def _file(path: Path, place: str, limits: ImportLimits) -> tuple[str, bytes] | Refused:
    with path.open("rb") as file:
        data = file.read(limits.file_bytes + 1)
    if len(data) > limits.file_bytes:
        return Refused(
            place,
            f"a file may have {limits.file_bytes // _MIB} MiB, and this one has more",
            "if it is a file of records, split it at a line break",
        )
    return place, data


def _folder(folder: Path, limits: ImportLimits) -> Iterator[tuple[str, bytes] | Refused]:
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
            if seen > limits.files:
                yield _over(printable(str(folder)), f"{limits.files} files")
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
                if total > limits.total_bytes:
                    yield _over(
                        printable(str(folder)), f"{limits.total_bytes // _MIB} MiB of records"
                    )
                    return
                yield _file(path, place, limits)
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
        f"may have {limit}, and has more; the others are not read",
        "import the folders of its machines one by one",
    )


def _lines(place: str, data: bytes, limits: ImportLimits) -> Iterator[SourceLine | Refused]:
    found = _exported(place, data, limits) or (
        (f"{place}:{line.number}", line.data) for line in lines_of(data)
    )
    digest = hashlib.sha256(data).hexdigest()
    for number, (where, line) in enumerate(found):
        if number >= limits.lines:
            yield Refused(
                where,
                f"a file may have {limits.lines} records, and this one has more lines; the others "
                "are not read",
                "check whether this is a file of records; if it is, split it",
            )
            return
        if len(line) > limits.line_bytes:
            yield Refused(
                where,
                f"a record may have {limits.line_bytes // _MIB} MiB (got {len(line)} bytes)",
                "check whether this is a file of records",
            )
        else:
            yield SourceLine(where, line, digest)


def _exported(place: str, data: bytes, limits: ImportLimits) -> list[tuple[str, bytes]]:
    """Return the records of an export of ``python -m studies.roofline``; empty for other files."""
    if EXPORT.encode() not in data[:_HEAD] or len(data) > _LARGEST_EXPORT:
        return []
    try:
        # One more than may be: ``_lines`` then says so.
        records = json.loads(data)["records"][: limits.lines + 1]
        return [(f"{place}: record {n}", json.dumps(r).encode()) for n, r in enumerate(records, 1)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []  # truncated, or another format: its lines are refused one by one
