"""Read lines of records from files, folders and archives of other machines.

Archives are not unpacked: their members are read one by one, and no file is written under a name
from an archive. Suspicious members are refused with the reason, and the others are read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ivhl.records.lines import LARGEST, LONGEST_LINE, MOST_LINES, lines_of
from ivhl.records.text import is_printable, printable
from ivhl.tracker.store.reading import RATIO

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDING = ".jsonl"
EXPORT = "ivhl.benchmarks/1"
_HEAD = 200  # the schema is within the first bytes of an export
_AGAIN = "download it again, and check that it is complete: unzip -t"
_MIB = 2**20
# Of a zip's list of members, before each of them.
_ENTRY = b"PK\x01\x02"
# Of an export, which is read as one document: JSON takes twenty times its bytes. One has 0.2 MiB.
_LARGEST_EXPORT = 8 * _MIB


@dataclass(frozen=True, slots=True)
class ImportLimits:
    """Limits of one source; those of one file are those of every file of records.

    Attributes:
        files: Entries of a folder or an archive, including other files.
        file_bytes: Size of one file, unpacked.
        total_bytes: Size of all files of a source, unpacked.
        ratio: Unpacked over packed bytes of an archive member.
        line_bytes: Size of one record.
        lines: Lines of one file that are not blank.
    """

    files: int = 20_000
    file_bytes: int = LARGEST
    total_bytes: int = 512 * _MIB
    ratio: int = RATIO
    line_bytes: int = LONGEST_LINE
    lines: int = MOST_LINES


@dataclass(frozen=True, slots=True)
class Refused:
    """A file, member or line that is refused.

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
        paths: Files of JSON lines, folders with such files at any depth, zip archives, or exports of
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
            yield Refused(place, "must be a file, a folder or a zip", "give the file of records")
        elif _begins_like_zip(path):
            yield from _archive(path, limits)
        else:
            yield _file(path, place, limits)
    except OSError as error:
        yield _unreadable(place, error)


def _begins_like_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06") or path.suffix == ".zip"


def _file(path: Path, place: str, limits: ImportLimits) -> tuple[str, bytes] | Refused:
    with path.open("rb") as file:
        data = file.read(limits.file_bytes + 1)
    if len(data) > limits.file_bytes:
        return _too_large(place, limits)
    return place, data


def _too_large(place: str, limits: ImportLimits) -> Refused:
    return Refused(
        place,
        f"a file may have {limits.file_bytes // _MIB} MiB, and this one has more",
        "if it is a file of records, split it at a line break",
    )


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
                yield _too_many(printable(str(folder)), limits)
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
                    yield _too_much(printable(str(folder)), limits)
                    return
                yield _file(path, place, limits)
            except OSError as error:
                yield _unreadable(place, error)
    for failed in unreadable:
        yield _unreadable(printable(str(failed.filename)), failed)
    if not found and not unreadable:
        yield _nothing(printable(str(folder)))


def _unreadable(place: str, error: OSError) -> Refused:
    return Refused(place, f"cannot be read: {error.strerror or error}", "check its permissions")


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # gone meanwhile: reading it says so
        return True


def _nothing(place: str) -> Refused:
    return Refused(
        place,
        f"must contain records: files that end in {ENDING}",
        "give the folder of results, or the one given to python -m ivhl.measure --out",
    )


def _too_many(place: str, limits: ImportLimits) -> Refused:
    return Refused(
        place,
        f"may have {limits.files} files, and has more; the others are not read",
        "import the folders of its machines one by one",
    )


def _too_much(place: str, limits: ImportLimits) -> Refused:
    return Refused(
        place,
        f"may have {limits.total_bytes // _MIB} MiB of records, and has more; the others are not "
        "read",
        "import the folders of its machines one by one",
    )


def _archive(path: Path, limits: ImportLimits) -> Iterator[tuple[str, bytes] | Refused]:
    place = printable(str(path))
    if path.stat().st_size > limits.total_bytes:
        yield _too_much(place, limits)
        return
    # Before the list of members is read: each takes ten times its bytes of memory.
    if _entries_at_most(path) > limits.files:
        yield _too_many(place, limits)
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield from _members(archive, place, limits)
    except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError) as error:
        yield Refused(place, f"must be a complete zip archive: {error}", _AGAIN)


def _entries_at_most(path: Path) -> int:
    """Return how often the signature of an entry is in an archive, whatever its end says."""
    found = 0
    with path.open("rb") as file:
        tail = b""
        while block := file.read(_MIB):
            found += (tail + block).count(_ENTRY)
            tail = block[1 - len(_ENTRY) :]
    return found


def _members(
    archive: zipfile.ZipFile, place: str, limits: ImportLimits
) -> Iterator[tuple[str, bytes] | Refused]:
    members = archive.infolist()
    if len(members) > limits.files:
        yield _too_many(place, limits)
        return
    total = found = 0
    for member in members:
        inside = f"{place}!{printable(member.filename)}"
        if member.is_dir():
            continue
        mistake = _name_mistake(member)
        if mistake:
            yield Refused(
                inside,
                mistake,
                "ask the sender for an archive of the results folder as ivhl wrote it",
            )
            continue
        if _is_hidden(member.filename) or not member.filename.endswith(ENDING):
            continue
        found += 1
        # The sizes in the header may be wrong, so the unpacked bytes are counted as well.
        packed = max(member.compress_size, 1)
        allowed = min(limits.file_bytes, max(packed * limits.ratio, _MIB))
        data = _member(archive, member, inside, allowed, limits)
        # A refused member counts as what was read of it: many zip bombs together are one.
        total += allowed if isinstance(data, Refused) else len(data)
        if total > limits.total_bytes:
            yield _too_much(place, limits)
            return
        yield data if isinstance(data, Refused) else (inside, data)
    if not found:
        yield _nothing(place)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _name_mistake(member: zipfile.ZipInfo) -> str:
    """Return the mistake in the name or the file type of a member; empty if none."""
    name = member.orig_filename
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        return f"a name in an archive must be relative (got {name!r})"
    if ".." in re.split(r"[/\\]", name):
        return f"a name in an archive must not leave its folder (got {name!r})"
    if not is_printable(name) or "\\" in name:
        return f"a name in an archive must be printable and without backslashes (got {name!r})"
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "a member of an archive must be a plain file, not a link or a device"
    return ""


def _member(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    place: str,
    allowed: int,
    limits: ImportLimits,
) -> bytes | Refused:
    if member.flag_bits & 1:
        return Refused(place, "must not be encrypted", "import it unencrypted")
    # Python unpacks a block of the other methods whole, however little of it is asked for.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return Refused(
            place,
            f"must be stored or deflated (got compression method {member.compress_type})",
            "ask the sender for an archive without bzip2, LZMA or Zstandard in it",
        )
    try:
        with archive.open(member) as file:
            data = file.read(allowed + 1)
    except Exception as error:  # noqa: BLE001  (each compression method raises its own errors)
        return Refused(place, f"cannot be unpacked: {type(error).__name__}: {error}", _AGAIN)
    if len(data) > limits.file_bytes:
        return _too_large(place, limits)
    if len(data) > allowed:
        return Refused(
            place,
            f"must not unpack to more than {limits.ratio} times its size "
            f"(got more than {allowed} bytes from {member.compress_size})",
            "ask the sender for another archive; records do not compress this well",
        )
    return data


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
