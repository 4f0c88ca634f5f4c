"""Errors that stop a command, each with its own exit code."""

from __future__ import annotations

import errno
import os
import re
import shutil
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


_LISTED = 10  # names in a hint
_DIGITS = 20  # of the numbers in names; more than any version or date has
_VERSION = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})+t?")  # of a Python or of PyTorch


class UnknownNameError(SpecError):
    """A name that is not in the list of valid names.

    Args:
        kind: What the name stands for, e.g. ``workload``.
        name: The name given.
        known: Every valid name.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}", hint=nearest(name, known))
        self.kind = kind
        self.name = name


def counted(number: int, noun: str) -> str:
    """Return e.g. ``1 cell`` or ``3 cells``; errors and all rooms above them count so."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint: the known names that are nearest to a wrong one, or the first of all."""
    names = sorted(known, key=_natural)
    alike = {n: likeness(name, n) for n in names}
    meant = [n for n in names if n.casefold() == name.casefold()]
    near = sorted((n for n in names if alike[n] >= ALIKE), key=lambda n: -alike[n])
    if _VERSION.fullmatch(name):
        versions = (n for n in names if _VERSION.fullmatch(n) and not _apart(name, n)[0])
        near = sorted(versions, key=lambda n: _apart(name, n)) or near
    if near := meant or near[:3]:
        return f"did you mean {' or '.join(near)}?"
    short = [name for name in names if "/" not in name] or names  # workloads, without their cases
    more = f" and {len(short) - _LISTED} more" if len(short) > _LISTED else ""
    return f"known: {', '.join(short[:_LISTED]) or 'none'}{more}"


def _apart(version: str, other: str) -> list[int]:
    """Return a key that sorts versions by how far they are from another: first numbers first."""
    numbers = (map(int, re.findall(r"[0-9]+", one)) for one in (version, other))
    return [abs(one - two) for one, two in zip(*numbers, strict=False)]


def _natural(name: str) -> str:
    """Return a key that sorts the numbers in names by value: 2.9.1 before 2.10.0."""
    return re.sub(r"[0-9]+", lambda digits: digits[0].zfill(_DIGITS), name)


class LockError(IvhlError):
    """A lock is missing, stale, not matched or cannot be resolved."""

    exit_code = 3


class InterpreterError(IvhlError):
    """This machine lacks a Python of the matrix."""

    exit_code = 4


class ResultsError(IvhlError):
    """Results cannot be read or written."""

    exit_code = 5


class UnforeseenError(IvhlError):
    """An error that ivhl did not foresee: a defect of ivhl, or of a library."""

    exit_code: ClassVar[int] = 70  # EX_SOFTWARE of sysexits.h


def explained(error: Exception) -> IvhlError:
    """Return any error as one with a message and a next step; every command ends with one.

    What a user can cause in a certain place has its own message there. This is for what can happen
    everywhere: disks, permissions, nesting, and what nobody foresaw.
    """
    if isinstance(error, IvhlError):
        return error
    if isinstance(error, shutil.Error):  # holds the texts of all files that were not copied
        error = system_error_in(str(error)) or error
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return ResultsError(
            f"{where}{error.strerror or error}",
            hint=_NEXT_STEPS.get(error.errno or 0, "check this file, its folder and its disk"),
        )
    if isinstance(error, UnicodeDecodeError | RecursionError):
        text = "a file or a value is nested too deeply"
        if isinstance(error, UnicodeDecodeError):
            text = f"a file must be text in UTF-8: {error}"
        return SpecError(text, hint="look at what was changed last")
    return UnforeseenError(
        f"ivhl failed, and should not have: {type(error).__name__}: {error}",
        hint="IVHL_TRACEBACK=1 prints where; please report it with the command",
    )


# As Python prints an OSError, also inside of the text of another error.
_SYSTEM_ERROR = re.compile(r"\[Errno (?P<number>\d+)\] (?P<rest>[^\n]*)")


def system_error_in(text: str) -> OSError | None:
    """Return the last error of the system that a text names, e.g. another program's output."""
    found = [*_SYSTEM_ERROR.finditer(text)]
    if not found:
        return None
    number = int(found[-1]["number"])
    named = re.search(r": '(?P<file>[^'\n]+)'", found[-1]["rest"])
    return OSError(number, os.strerror(number), named["file"] if named else None)


_NEXT_STEPS = {
    errno.EACCES: "check the permissions, or choose another folder",
    errno.EDQUOT: "make room, then run the same command again",
    errno.EFBIG: "allow larger files (ulimit -f), then run the same command again",
    errno.ELOOP: "a link leads to itself: correct it",
    errno.EMFILE: "allow more open files: ulimit -n",
    errno.ENOSPC: "make room, there or in TMPDIR, then run the same command again",
    # tempfile names no errno of its own for a full or missing folder.
    errno.ENOENT: "check that it exists and, for a temporary folder, that TMPDIR has room",
    errno.EPERM: "check the permissions, or choose another folder",
    errno.EROFS: "this disk cannot be written: use a checkout on another one",
}


def likeness(given: str, known: str) -> float:
    """Return the similarity of two names, from 0 to 1, also against the start of a long name."""
    beginning = known[: len(given) + 1]
    return max(SequenceMatcher(a=given, b=text).ratio() for text in (known, beginning))


class WorseError(IvhlError):
    """A case got worse from one commit to another."""

    exit_code: ClassVar[int] = 7


class NoSpeedupError(IvhlError):
    """A case that was run has no speedup."""

    exit_code: ClassVar[int] = 7


class FixedError(IvhlError):
    """A case passes that the known failures of the project, an own file, expect to fail."""

    exit_code: ClassVar[int] = 11
