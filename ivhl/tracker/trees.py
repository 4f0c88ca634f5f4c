"""The Python files of a code base as syntax trees. Nothing of it is run or imported."""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Folders that hold the code of others, or none.
_FOREIGN: Final = frozenset(
    {".git", ".hg", ".nox", ".tox", ".venv", "venv", "site-packages", "node_modules", "build",
     "dist", "__pycache__", ".asv", ".eggs"}
)  # fmt: skip


class SourceFile(NamedTuple):
    """A file that parses.

    Attributes:
        name: Its path, from the folder that was read.
    """

    name: str
    tree: ast.Module
    text: str


class Trees(NamedTuple):
    """A code base.

    Attributes:
        files: In the order of their paths.
        problems: A line for each file that cannot be read or does not parse.
    """

    files: tuple[SourceFile, ...]
    problems: tuple[str, ...]


def read_trees(folder: Path) -> Trees:
    """Return the Python files of a folder, or one file."""
    paths = [folder] if folder.is_file() else sorted(_files(folder))
    base = folder.parent if folder.is_file() else folder
    files, problems = [], []
    for path in paths:
        name = str(path.relative_to(base))
        try:
            text = path.read_bytes().decode("utf-8")
            with warnings.catch_warnings(action="ignore"):  # about the code of others
                files.append(SourceFile(name, ast.parse(text), text))
        except SyntaxError as error:
            problems.append(f"{name}:{error.lineno}: does not parse: {error.msg}")
        except UnicodeDecodeError as error:
            problems.append(f"{name}: is not UTF-8: {error}")
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            problems.append(f"{name}: cannot be read: {error}")
    return Trees(tuple(files), tuple(problems))


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.py"):
        if not _FOREIGN.intersection(path.relative_to(folder).parts[:-1]) and path.is_file():
            yield path
