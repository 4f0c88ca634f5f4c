"""Write records: where each one goes, one line at a time, and files that are replaced whole."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ivhl.errors import ResultsError
from ivhl.records.record import to_json

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.records.record import RunRecord

# Prefix of a file that is still being written; a killed process may leave one.
UNFINISHED: Final = ".ivhl-import-"


def append_record(path: Path, record: RunRecord) -> None:
    """Append the record to the file as one line; an interrupted write damages only its own line.

    Writes the line in one call and forces it to disk. If the last line of the file was cut off (a
    full disk, a power failure), a line break comes first.

    Raises:
        OSError: If the disk is full or the folder cannot be written.
    """
    append_line(path, to_json(record))


def append_line(path: Path, line: str) -> None:
    """Append one record in its JSON form; see ``append_record``.

    Raises:
        OSError: If the disk is full or the folder cannot be written.
    """
    data = (line + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                data = b"\n" + data
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def record_file(results: Path, machine: str, commit: str, cell_id: str) -> Path:
    """Return the file for the records of one machine, commit and cell.

    Its suffix is not ``.json``, because asv reads all such files under its results folder.
    """
    return results / machine / "records" / f"{commit[:8]}-{cell_id}.jsonl"


def records_files(results: Path) -> tuple[list[Path], list[tuple[Path, str]]]:
    """Return the files of records, sorted, and the folders that cannot be read, each with a rule.

    ``glob`` passes over such folders: a machine would vanish from every table.
    """
    found: list[Path] = []
    unreadable: list[tuple[Path, str]] = []
    for folder in sorted(results.glob("*/")):
        records = folder / "records"
        try:
            found += sorted(path for path in records.iterdir() if path.suffix == ".jsonl")
        except FileNotFoundError:
            continue
        except OSError as error:
            unreadable.append((records, f"cannot be read: {error.strerror}"))
    return found, unreadable


def read_records_file(path: Path) -> bytes:
    """Return the content of a file of records.

    Raises:
        ResultsError: If it cannot be read.
    """
    try:
        # A pipe would block forever, and a device may never end.
        if not path.is_file():
            raise ResultsError("must be a plain file")
        return path.read_bytes()
    except OSError as error:
        raise ResultsError(f"cannot be read: {error.strerror}") from error


def write_whole(path: Path, data: bytes) -> bool:
    """Replace a file atomically; return whether its content changed.

    Raises:
        ResultsError: If it cannot be written; the old file stays.
    """
    unfinished = path.with_name(f"{UNFINISHED}{path.name}.part")
    try:
        if path.is_file() and path.read_bytes() == data:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise ResultsError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="make room and run the same command again: what was taken stays, and the rest "
            "is taken then",
        ) from error
    return True
