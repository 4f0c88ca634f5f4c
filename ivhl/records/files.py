"""Write records: where each one goes, one line at a time, and files that are replaced whole.

Projects and results come from others, and may hold links. A folder that a person names (the project,
``--results``) may be a link itself; nothing is written or deleted through a link inside of it. That
protects from what a repository or an archive brings along, not from a process that makes links
meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ivhl.errors import ResultsError, explained
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
        OSError: If the disk is full, the folder cannot be written, the file is a link, a pipe or a
            device, or it would be larger than ``lines.LARGEST``.
    """
    data = (line + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+", buffering=0, opener=not_through_links) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "must be a plain file", str(path))
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


def not_through_links(path: str, flags: int) -> int:
    """Open a file for ``open``; raises ``OSError`` for a link, and does not wait for a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def record_file(results: Path, machine: str, commit: str, cell_id: str) -> Path:
    """Return the file for the records of one machine, commit and cell.

    Its suffix is not ``.json``, because asv reads all such files under its results folder.

    Raises:
        ResultsError: If a link leads out of the results.
    """
    name = f"{commit[:8]}-{cell_id}.jsonl"
    return without_links(results / machine / "records" / name, results)


def without_links(path: Path, root: Path) -> Path:
    """Return a path in which nothing below ``root`` is a link; what is not there yet is none.

    Raises:
        ResultsError: If a part of it is a link, or leads out of the root.
    """
    place = root
    for part in path.relative_to(root).parts:
        place /= part
        if part == ".." or place.is_symlink():
            raise ResultsError(
                f"{place}: must not be a link, and must lie in {root}: ivhl writes there",
                hint="put the file or folder itself there",
            )
    return path


def write_whole(path: Path, data: bytes, root: Path) -> bool:
    """Replace a file atomically; return whether its content changed.

    Args:
        path: The file; folders above it are made.
        data: Its new content.
        root: The folder of the project or of the results that holds it; see ``without_links``.

    Raises:
        ResultsError: If it cannot be written, or is reached through a link; the old file stays.
    """
    without_links(path, root)
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

    The permissions of the old file stay.

    Raises:
        ResultsError: If it cannot be written; the old file stays. What else is raised meanwhile
            leaves the old file, too.
    """
    unfinished = path.with_name(f"{UNFINISHED}{path.name}.part")
    try:
        if os.path.lexists(unfinished):  # a killed run left it, or a repository holds it as a link
            unfinished.unlink()
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        if path.is_file():
            unfinished.chmod(stat.S_IMODE(path.stat().st_mode))
        unfinished.replace(path)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise ResultsError(
            f"{path} cannot be written: {error.strerror or error}", hint=explained(error).hint
        ) from error
