"""Find the blocks of the pages that commands make, and make them again."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from studies.tables.exports import FROM_EXPORTS
from studies.tables.gpu import FROM_GPU
from studies.tables.records import FROM_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLES: Final = {**FROM_RECORDS, **FROM_EXPORTS, **FROM_GPU}
BEGIN: Final = re.compile(r"<!--made by: (.+) -->")
END: Final = "<!--end-->"
OWN: Final = ["python", "-m", "studies.tables"]
READING: Final = tuple(["ivhl", name] for name in ("advise", "compat", "compare", "course"))
WRITES: Final = "--output"
COLUMNS: Final = "100"  # more would be cut off where GitHub shows a page


class BlockError(ValueError):
    """A page has a block that cannot be made; the message names page, line and rule."""


@dataclass(frozen=True, slots=True)
class PageBlock:
    """A block of a page.

    Attributes:
        line: Line of its first mark, from 1.
        command: The command that makes it.
        content: The lines between its marks.
    """

    line: int
    command: str
    content: tuple[str, ...]


def pages(root: Path) -> list[Path]:
    """Return the pages that may have blocks."""
    ours = (root / "docs").rglob("*.md")
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted(ours)]


def blocks_of(page: Path) -> Iterator[PageBlock]:
    """Yield the blocks of a page.

    Raises:
        BlockError: If a block has no end, or begins inside another one.
    """
    begin: tuple[int, str] | None = None
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        found = BEGIN.fullmatch(line)
        if begin is None and found is not None:
            begin = (number, found[1])
        elif begin is not None and found is not None:
            raise BlockError(f"{page}:{number}: a block must not begin in that of line {begin[0]}")
        elif begin is not None and line == END:
            yield PageBlock(*begin, tuple(lines[begin[0] : number - 1]))
            begin = None
    if begin is not None:
        raise BlockError(f"{page}:{begin[0]}: the block must end with the line {END!r}")


def make(command: str, root: Path) -> list[str]:
    """Return the lines that a command makes: Markdown, or the console of an ``ivhl`` command.

    Raises:
        ValueError: If the command is none of those that only read.
        subprocess.CalledProcessError: If it fails.
    """
    words = shlex.split(command)
    if words[:3] == OWN and len(words) == 4 and words[3] in TABLES:  # noqa: PLR2004
        lines = TABLES[words[3]](root)
    elif words[:2] in READING and not any(word.startswith(WRITES) for word in words):
        lines = ["```console", f"$ {command}", *_console(words[1:], root), "```"]
    else:
        raise ValueError(
            "the command must be ivhl advise, compat, compare or course without --output, or "
            f"{shlex.join(OWN)} with one of {', '.join(TABLES)} (got {command!r})"
        )
    return ["", *lines, ""]


def _console(words: list[str], root: Path) -> list[str]:
    environment = {
        k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "TTY_COMPATIBLE"}
    }
    done = subprocess.run(
        [sys.executable, "-m", "ivhl", *words],
        cwd=root,
        env=environment | {"COLUMNS": COLUMNS, "NO_COLOR": "1"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    return [line.rstrip() for line in done.stdout.rstrip().splitlines()]


def stale(root: Path) -> list[tuple[Path, PageBlock, list[str]]]:
    """Return the blocks whose content is not what their command makes, with what it makes.

    Raises:
        BlockError: If a block cannot be made.
    """
    found = []
    for page in pages(root):
        for block in blocks_of(page):
            try:
                made = make(block.command, root)
            except (ValueError, subprocess.CalledProcessError) as error:
                raise BlockError(f"{page}:{block.line}: {error}") from error
            if made != list(block.content):
                found.append((page, block, made))
    return found


def write(page: Path, block: PageBlock, made: list[str]) -> None:
    """Replace the content of a block in its page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    lines[block.line : block.line + len(block.content)] = made
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
