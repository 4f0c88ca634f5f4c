"""Errors that stop a command, each with its own exit code."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


ALIKE = 0.5


class IvhlError(Exception):
    """Base of every error that ivhl raises on purpose.

    Args:
        message: The place, the rule and the value seen.
        hint: The next step; printed on its own line.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SpecError(IvhlError):
    """A file or an argument from the user is invalid."""

    exit_code = 2


class UnknownNameError(SpecError):
    """A name that is not in the list of valid names.

    Args:
        kind: What the name stands for, e.g. ``workload``.
        name: The name given.
        known: Every valid name.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        alike = {n: likeness(name, n) for n in names}
        near = sorted((n for n in names if alike[n] >= ALIKE), key=lambda n: -alike[n])[:3]
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
        super().__init__(f"unknown {kind} {name!r}", hint=hint)


class LockError(IvhlError):
    """A lock is missing, stale, not matched or cannot be resolved."""

    exit_code = 3


class InterpreterError(IvhlError):
    """This machine lacks a Python of the matrix."""

    exit_code = 4


class ResultsError(IvhlError):
    """Results cannot be read or written."""

    exit_code = 5


def likeness(given: str, known: str) -> float:
    """Return the similarity of two names, from 0 to 1, also against the start of a long name."""
    beginning = known[: len(given) + 1]
    return max(SequenceMatcher(a=given, b=text).ratio() for text in (known, beginning))


class WorseError(IvhlError):
    """A case got worse from one commit to another."""

    exit_code: ClassVar[int] = 7
