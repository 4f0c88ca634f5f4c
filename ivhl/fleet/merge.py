"""Put records into the files of a machine: each once, in the order of time, all or nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ivhl.errors import ResultsError
from ivhl.records import to_json
from ivhl.tracker.store import parse_record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ivhl.records import RunRecord

# Neither .json nor .jsonl, which asv and ivhl would read.
_UNFINISHED = ".ivhl-import-"


@dataclass(frozen=True, slots=True)
class Merged:
    """How many records of those offered were new to a file, and how many it had."""

    new: int
    had: int


def merge_records(path: Path, records: Iterable[RunRecord]) -> Merged:
    """Add the records that the file does not hold yet.

    Lines are put in order of time: within a file the later line counts, so the result must not
    depend on which archive came first. Lines that cannot be read stay, at the beginning. Without
    a new record the file is left alone.

    Raises:
        ResultsError: If it cannot be written; the file is then as it was.
    """
    lines: list[tuple[str, str, bytes]] = []
    here: set[str] = set()
    old = _lines(path)
    for line in old:
        try:
            record = parse_record(line)
        except ValueError:
            lines.append(("", "", line))
        else:
            text = to_json(record)
            here.add(text)
            lines.append((record.recorded_at, text, line))
    new = had = 0
    for record in records:
        text = to_json(record)
        if text in here:
            had += 1
            continue
        here.add(text)
        new += 1
        lines.append((record.recorded_at, text, text.encode()))
    if new:
        lines.sort(key=lambda line: line[:2])
        write_whole(path, b"".join(line + b"\n" for *_, line in lines))
    return Merged(new, had)


def _lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ResultsError(
            f"{path} cannot be read: {error}", hint="see its permissions"
        ) from error
    return [line for line in data.split(b"\n") if line.strip()]


def write_whole(path: Path, data: bytes) -> bool:
    """Write a file so that a reader sees the old one or the new one; return whether it changed.

    Raises:
        ResultsError: If it cannot be written; what was there stays.
    """
    unfinished = path.with_name(f"{_UNFINISHED}{path.name}.part")
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


def remove_unfinished(results: Path) -> None:
    """Remove what an import that was killed was writing."""
    for folder in (results, *results.glob("*/"), *results.glob("*/records/")):
        for path in folder.glob(f"{_UNFINISHED}*.part"):
            with suppress(OSError):
                path.unlink()
