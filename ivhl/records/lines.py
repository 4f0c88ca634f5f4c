"""The lines of a file of records, and the limits that hold for every such file, wherever it lies."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A file holds the records of one commit in one cell, and is read into memory. The largest in this
# repository has 1.1 MB, the longest line 17 kB.
LARGEST: Final = 64 << 20
LONGEST_LINE: Final = 1 << 20
# A record has more than 1 KiB, so a file of records reaches its size first; the most here are 130.
MOST_LINES: Final = 100_000
# Lines of a file that are no records: no file of ours had more than the one that a kill cut off.
MOST_NAMED: Final = 1000
# A line with anything but blanks. Its blanks at the beginning are not in it.
_LINE: Final = re.compile(rb"[^\s][^\n]*")


class Line(NamedTuple):
    """A line that is not blank.

    Attributes:
        number: From 1.
        start: Place of its first byte in the file.
    """

    number: int
    start: int
    data: bytes


def lines_of(data: bytes, start: int = 0, number: int = 0) -> Iterator[Line]:
    """Yield the lines that are not blank, one at a time: a file can consist of line breaks.

    Args:
        data: The content of a file.
        start: Bytes at its beginning that are passed over.
        number: Lines that these have.
    """
    number += 1
    for found in _LINE.finditer(data, start):
        number += data.count(b"\n", start, found.start())
        start = found.start()
        yield Line(number, start, found[0])


def read_plain(path: Path) -> bytes:
    """Return the content of a file of records.

    Raises:
        ResultsError: If it cannot be read, or is over a limit. Then nothing of it counts: with a
            part of its lines, an older record would be taken for the newest one of its case.
    """
    try:
        # A pipe would block forever, and a device may never end.
        if not path.is_file():
            raise ResultsError("must be a plain file")
        if (size := path.stat().st_size) > LARGEST:
            raise ResultsError(f"must have at most {LARGEST} bytes (got {size})")
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise ResultsError(f"cannot be read: {error.strerror}") from error
    if len(data) > LARGEST:  # it grew meanwhile
        raise ResultsError(f"must have at most {LARGEST} bytes (got more)")
    return within_limits(data)


def within_limits(data: bytes) -> bytes:
    """Return the content of a file of records.

    Raises:
        ResultsError: If it has more than ``LARGEST`` bytes or ``MOST_LINES`` lines.
    """
    if len(data) > LARGEST:
        raise ResultsError(f"must have at most {LARGEST} bytes (got {len(data)})")
    more = (
        islice(_LINE.finditer(data), MOST_LINES, None) if data.count(b"\n") >= MOST_LINES else ()
    )
    if next(iter(more), None) is not None:
        raise ResultsError(f"must have at most {MOST_LINES} lines (got more)")
    return data
