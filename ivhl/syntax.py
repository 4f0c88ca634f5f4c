"""The Python files of a code base as syntax trees. Nothing of it is run or imported."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.matrix.spec import read_plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Folders that hold the code of others, or none.
_FOREIGN: Final = frozenset(
    {".git", ".hg", ".nox", ".tox", ".venv", "venv", "site-packages", "node_modules", "build",
     "dist", "__pycache__", ".asv", ".eggs", ".ipynb_checkpoints"}
)  # fmt: skip
# What parsing the text of somebody may raise.
UNPARSED: Final = (SyntaxError, ValueError, RecursionError, MemoryError)
# A tree takes up to 1.5 KB for each; the largest file of PyTorch 2.15.0 has 263,000.
_MOST_TOKENS: Final = 500_000
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
# Python refuses decimal ones by itself.
_LONG_INTEGER: Final = re.compile(r"\b0[xXoObB][0-9a-fA-F_]{1000}")
# As Python counts lines: ``str.splitlines`` also splits at a form feed.
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class SourceText(NamedTuple):
    """The text of a file, which may not parse.

    Attributes:
        name: Its path, from the folder that was read.
    """

    name: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its lines, as Python counts them."""
        return _LINE_END.split(self.text)


def read_texts(folder: Path) -> tuple[list[SourceText], list[str]]:
    """Return the Python files of a folder, or one file, and a line for each that cannot be read.

    A tree takes thirty times the memory of its text.
    """
    paths = [folder] if folder.is_file() else sorted(_files(folder))
    base = folder.parent if folder.is_file() else folder
    texts: list[SourceText] = []
    problems: list[str] = []
    for path in paths:
        name = str(path.relative_to(base))
        try:
            texts.append(SourceText(name, decoded(path)))
        except UnicodeDecodeError as error:
            problems.append(f"{name}: is not {error.encoding.upper()}: {error}")
        except (OSError, ValueError, SyntaxError, RecursionError) as error:
            problems.append(f"{name}: cannot be read: {error}")
    return texts, problems


def why_unparsed(name: str, error: BaseException) -> str:
    """Return a line on a text that does not parse, by what ``parsed`` raised (``UNPARSED``)."""
    if not isinstance(error, SyntaxError):
        return f"{name}: cannot be read: {error}"
    line = f":{error.lineno}" if error.lineno else ""
    return f"{name}{line}: does not parse: {error.msg}"


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a text, without warnings about the code of others.

    Raises:
        SyntaxError: If it is no Python; ``UNPARSED`` has what else Python raises.
        ValueError: If it has too many tokens, or an integer that Python does not print.
    """
    # No text has more tokens than characters.
    if len(text) > _MOST_TOKENS and sum(1 for _ in _TOKEN.finditer(text)) > _MOST_TOKENS:
        raise ValueError(f"has more than {_MOST_TOKENS} tokens")
    if _LONG_INTEGER.search(text):
        raise ValueError("has an integer of thousands of digits")
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(text)


def decoded(path: Path) -> str:
    """Return the text of a Python file as Python reads it.

    Raises:
        OSError: If it cannot be read, is no plain file, or is larger than any text.
        SyntaxError: If it names an encoding that does not exist, or is none of texts.
        UnicodeDecodeError: If it is not in its encoding.
    """
    data = read_plain(path)
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    try:
        return data.decode(encoding)
    except LookupError as error:  # e.g. rot13, which makes texts of texts
        raise SyntaxError(str(error)) from error


def _files(folder: Path) -> Iterator[Path]:
    left = [folder]
    while left:  # no recursion: a tree may be deeper than Python's stack
        with suppress(OSError):
            for path in left.pop().iterdir():
                if path.is_dir() and not path.is_symlink():
                    left += [path] if path.name not in _FOREIGN else []
                elif path.suffix == ".py" and path.is_file():
                    yield path
