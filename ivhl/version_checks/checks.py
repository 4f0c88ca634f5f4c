"""A check that was found, and what switches it off in its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

    from ivhl.version_checks.version_conditions import Condition

CheckKind = Literal["skip", "xfail", "branch", "disable"]


class Edit(NamedTuple):
    """A piece of a file to replace: from line and column to line and column, in UTF-8 bytes."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheck:
    """A place that keeps code from being compiled, or a test of it from being run.

    Attributes:
        path: The file, from the folder that was searched.
        name: Function, class or module that it checks, dotted.
        excludes: Where it does so.
        reason: What it says itself.
        source: Its first line.
        edits: What switches it off; empty if that cannot be done by replacing its condition.
    """

    path: str
    line: int
    kind: CheckKind
    name: str
    excludes: Condition
    reason: str
    source: str
    edits: tuple[Edit, ...]

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.path}:{self.line}"


def edit_of(node: ast.expr, text: str) -> Edit:
    """Return what puts a text in the place of an expression."""
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return Edit(node.lineno, node.col_offset, end_line, end_column, text)


def switched_off(text: str, edits: Iterable[Edit]) -> str:
    """Return the text of a file with its check switched off."""
    lines = text.encode("utf-8").splitlines(keepends=True)
    for edit in sorted(edits, reverse=True):
        first, last = lines[edit.line - 1], lines[edit.end_line - 1]
        joined = first[: edit.column] + edit.text.encode() + last[edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [joined]
    return b"".join(lines).decode("utf-8")


def at(checks: Iterable[FoundCheck], place: str) -> tuple[FoundCheck, ...]:
    """Return the checks at a place, ``FILE:LINE``."""
    name, _, line = place.rpartition(":")
    return tuple(g for g in checks if line == str(g.line) and Path(g.path).match(name or g.path))
