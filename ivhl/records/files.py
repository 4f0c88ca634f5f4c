"""Write records: where each one goes, one line at a time, and files that are replaced whole."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ivhl.errors import ResultsError
from ivhl.records.lines import LARGEST
from ivhl.records.record import to_json

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    """Append one record in its JSON form; see ``append_record``. What fails leaves no half line.

    Raises:
        OSError: If the disk is full, the folder cannot be written, or the file would be larger than
            ``lines.LARGEST``.
    """
    data = (line + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size + len(data) >= LARGEST:  # nobody would read any line of it again
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                data = b"\n" + data
        written = 0
        try:
            while written < len(data):
                written += file.write(data[written:])
            os.fsync(file.fileno())
        except OSError:
            # A full disk takes half of a line. Nobody wrote after it if the file ends with it.
            with suppress(OSError):
                if os.fstat(file.fileno()).st_size == size + written:
                    file.truncate(size)
            raise


def record_file(results: Path, machine: str, commit: str, cell_id: str) -> Path:
    """Return the file for the records of one machine, commit and cell.

    Its suffix is not ``.json``, because asv reads all such files under its results folder.
    """
    return results / machine / "records" / f"{commit[:8]}-{cell_id}.jsonl"


def write_whole(path: Path, data: bytes) -> bool:
    """Replace a file atomically; return whether its content changed.

    Raises:
        ResultsError: If it cannot be written; the old file stays.
    """
    with suppress(OSError):  # raised again below
        if path.is_file() and path.read_bytes() == data:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
    with replaced_whole(path) as unfinished:
        unfinished.write_bytes(data)
    return True


@contextmanager
def replaced_whole(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, beside ``path``, that replaces it atomically at the end.

    Raises:
        ResultsError: If it cannot be written; the old file stays. What else is raised meanwhile
            leaves the old file, too.
    """
    unfinished = path.with_name(f"{UNFINISHED}{path.name}.part")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise ResultsError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="make room, then run the same command again: what is written stays",
        ) from error
