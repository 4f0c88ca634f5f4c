"""Merge records into a machine's files: without duplicates, in order of time, atomically."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ivhl.errors import ResultsError
from ivhl.records.age import recorded_rank
from ivhl.records.files import UNFINISHED, without_links, write_whole
from ivhl.records.lines import lines_of, read_plain, within_limits
from ivhl.records.reader import read_record
from ivhl.records.record import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ivhl.records.record import RunRecord


class FullError(ResultsError):
    """A file of records would be larger than any reader takes; it is unchanged."""


def merge_records(path: Path, records: Iterable[RunRecord]) -> tuple[int, int]:
    """Add the records that the file does not have; return how many, and how many it had.

    Lines are sorted by time: the later line of a case counts, and the result must not depend on the
    order of imports. Lines that cannot be read are kept, at the beginning. Without a new record the
    file is not written.

    Raises:
        FullError: If the file would be over a limit; it is then unchanged.
        ResultsError: If it cannot be written; likewise.
    """
    lines: list[tuple[tuple[bool, str], str, bytes]] = []
    here: set[str] = set()
    old = _lines(path)
    for line in old:
        try:
            record = read_record(line)
        except ValueError:
            lines.append(((False, ""), "", line))
        else:
            text = to_json(record)
            here.add(text)
            lines.append((recorded_rank(record), text, line))
    new = had = 0
    for record in records:
        text = to_json(record)
        if text in here:
            had += 1
            continue
        here.add(text)
        new += 1
        lines.append((recorded_rank(record), text, text.encode()))
    if new:
        lines.sort(key=lambda line: line[:2])
        data = b"".join(line + b"\n" for *_, line in lines)
        write_whole(path, _within_limits(path, data), path.parents[2])
    return new, had


def _lines(path: Path) -> list[bytes]:
    try:
        return [line.data for line in lines_of(read_plain(path))] if path.exists() else []
    except ResultsError as error:
        raise ResultsError(
            f"{path}: {error}", hint="check its permissions, or move it elsewhere"
        ) from error


def _within_limits(path: Path, data: bytes) -> bytes:
    try:
        return within_limits(data)
    except ResultsError as error:
        raise FullError(
            f"{path} would be no file of records any more: {error}",
            hint="the file is unchanged; move old records of this commit and cell elsewhere",
        ) from error


def remove_unfinished(results: Path) -> None:
    """Remove the partial files of a killed import."""
    for folder in (results, *results.glob("*/"), *results.glob("*/records/")):
        for path in folder.glob(f"{UNFINISHED}*.part"):
            with suppress(OSError, ResultsError):
                without_links(path, results).unlink()
