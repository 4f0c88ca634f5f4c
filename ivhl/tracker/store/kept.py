"""Read and write what people and commands keep beside the records, one JSON value to a line."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypeVar

from ivhl.errors import ResultsError
from ivhl.records.files import append_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

Line = TypeVar("Line")


def keep_lines(path: Path, values: Iterable[Mapping[str, Any]], *, in_ascii: bool = True) -> None:
    """Append values to a file, one to a line; texts of people stay readable outside of ASCII.

    Raises:
        ResultsError: If the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for value in values:
            append_line(path, json.dumps(value, ensure_ascii=in_ascii))
    except OSError as error:
        raise ResultsError(
            f"{path} cannot be written: {error}",
            hint="it must be a plain file on a disk with room; then run the same again",
        ) from error


def load_lines(
    path: Path, parse: Callable[[Any], Line], what: str, writer: str
) -> tuple[Line, ...]:
    """Return the values of a file, oldest first; none if there is no file.

    Args:
        path: The file; it may hold anything.
        parse: Makes a value of JSON; raises ``ValueError`` or ``TypeError`` if it cannot.
        what: What a line is, for the message.
        writer: The command that writes the lines.

    Raises:
        ResultsError: If the file cannot be read, or a line is none; names the line.
    """
    try:
        if not os.path.lexists(path):
            return ()
        # A pipe would block forever, and a device may never end.
        if not path.is_file():
            raise ResultsError(
                f"{path}: must be a plain file", hint="move what has its name elsewhere"
            )
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ResultsError(
            f"{path}: cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    found = []
    # Not ``splitlines``: JSON may hold other separators of lines as they are.
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(parse(json.loads(line)))
            except (ValueError, TypeError, RecursionError) as error:
                raise ResultsError(
                    f"{path}:{number}: no {what}: {error}",
                    hint=f"correct or remove the line; {writer} writes them",
                ) from error
    return tuple(found)
