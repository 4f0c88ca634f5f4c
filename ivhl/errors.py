"""Errors that stop a command. Each has its own exit code, so scripts can tell them apart."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class IvhlError(Exception):
    """Base of every error that ivhl raises on purpose.

    Args:
        message: The place, the rule and the value seen.
        hint: What the reader should do next; printed on its own line.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SpecError(IvhlError):
    """A file or an argument that people write is not valid."""

    exit_code = 2


class UnknownNameError(SpecError):
    """A name that is not in the list it should be in.

    Args:
        kind: What the name stands for, e.g. ``workload``.
        name: The name given.
        known: Every valid name.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
        super().__init__(f"unknown {kind} {name!r}", hint=hint)


class LockError(IvhlError):
    """A lock is missing, stale, not matched or cannot be made."""

    exit_code = 3


class InterpreterError(IvhlError):
    """A Python that the matrix names is not on this machine."""

    exit_code = 4


class ResultsError(IvhlError):
    """Results cannot be read or written."""

    exit_code = 5
