"""Files that ``ivhl init`` makes or adds to, and the templates they are made of."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Self

from ivhl.errors import SpecError
from ivhl.git import top_level
from ivhl.matrix.spec import read_plain
from ivhl.records.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that ``ivhl init`` makes or adds to.

    Attributes:
        path: Relative to the root of the project; a workflow of a monorepo is above it.
        data: The new file, or what is added at its end; text in UTF-8, except for wheels.
        added: Whether the file exists, and the data is added.
    """

    path: Path
    data: bytes
    added: bool = False

    @classmethod
    def of(cls, path: Path, text: str, *, added: bool = False) -> Self:
        """Return a change of a text file."""
        return cls(path, text.encode(), added)


def write_changes(root: Path, changes: Iterable[FileChange]) -> None:
    """Write changes of a project, each whole or not at all.

    Raises:
        SpecError: If a file is there by now; those before it are written.
        ResultsError: If one cannot be written, or a link is in its path; likewise.
    """
    root = root.resolve()
    for change in changes:
        path = Path(os.path.normpath(root / change.path))
        if not change.added and os.path.lexists(path):
            raise SpecError(
                f"{path}: cannot be written: File exists",
                hint="look at it and move it away, then run the same command again: it goes on",
            )
        there = read_plain(path) if change.added else b""
        write_whole(path, there + change.data, root if root in path.parents else top_level(root))


def fill(template: str, **values: str) -> str:
    """Return a template of this package with its placeholders filled in."""
    text = files("ivhl.init").joinpath("templates", template).read_text(encoding="utf-8")
    return Template(text).substitute(values)
