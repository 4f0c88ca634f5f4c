"""Records that a person names: a file of records, or a line of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ivhl.errors import ResultsError, SpecError
from ivhl.records.lines import read_plain
from ivhl.records.reader import records_in
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from ivhl.records.record import RunRecord

_NUMBERED: Final = re.compile(r"(?P<path>.+):(?P<line>[0-9]+)")


def records_named(text: str) -> tuple[list[RunRecord], list[str]]:
    """Return the records of a file, or the one of a line, and what in it is no record.

    Nothing if the text names no file. A line that is no record, as the last one after a kill, is
    left out.

    Args:
        text: ``FILE`` or ``FILE:LINE``.

    Raises:
        SpecError: If the file is not there, or has no such record; names it.
    """
    numbered = _NUMBERED.fullmatch(text)
    path = Path(text)
    if numbered and not path.is_file():
        path = Path(numbered["path"])
    if path.is_dir():
        raise SpecError(f"{path}: is a folder", hint="name a file of records in it, or FILE:LINE")
    if not path.is_file():
        if ".jsonl" in path.name:
            raise SpecError(f"{text}: no such file", hint="FILE, FILE:LINE, or a case")
        return [], []
    try:
        data = read_plain(path)
    except ResultsError as error:
        raise SpecError(f"{path}: {error}", hint="name another file of records") from error
    number = int(numbered["line"]) if numbered and path != Path(text) else None
    if number is not None and not 1 <= number <= (lines := len(data.splitlines())):
        raise SpecError(
            f"{path}: line {number}: the file has {counted(lines, 'line')}", hint="count from 1"
        )
    return _read(path, data, number)


def _read(path: Path, data: bytes, wanted: int | None) -> tuple[list[RunRecord], list[str]]:
    """Return the records of a file, or the one of a line, and what is none.

    Raises:
        SpecError: If there is no record among them.
    """
    found, mistakes = [], []
    for (number, *_), record in records_in(data):
        if wanted not in (None, number):
            continue
        if isinstance(record, str):
            mistakes.append(f"{path}: line {number}: is no record: {record}")
        else:
            found.append(record)
    if not found:
        raise SpecError(
            mistakes[0] if mistakes else f"{path}: has no record",
            hint="name a file that has one, or a case of the results",
        )
    return found, mistakes
