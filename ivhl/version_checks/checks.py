"""A check that was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ivhl.version_checks.version_conditions import Condition

CheckKind = Literal["skip", "xfail", "branch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheck:
    """A place that keeps code from being compiled, or a test of it from being run.

    Attributes:
        path: The file, from the folder that was searched.
        name: Function, class or module that it checks, dotted.
        excludes: Where it does so.
        reason: What it says itself.
        source: Its first line.
    """

    path: str
    line: int
    kind: CheckKind
    name: str
    excludes: Condition
    reason: str
    source: str

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.path}:{self.line}"
