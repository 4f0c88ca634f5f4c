"""Run a program that reports something about the machine."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE_S = 60


class ProgramError(Exception):
    """A program cannot be run, does not finish in time, or fails; the message says which."""


class MissingProgramError(ProgramError):
    """A program is not installed."""


def run_program(command: Sequence[str], *, input_: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program and return its result; the caller checks the exit status.

    Args:
        command: Program and arguments.
        input_: What it reads from stdin.

    Raises:
        MissingProgramError: If it is not installed.
        ProgramError: If it cannot be run, or does not finish in time.
    """
    try:
        return subprocess.run(
            command,
            input=input_,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProgramError(f"does not finish within {_PATIENCE_S} s") from None
    except FileNotFoundError:
        raise MissingProgramError("is not installed") from None
    except OSError as error:
        raise ProgramError(f"cannot be run: {error.strerror}") from None


def first_line(text: str) -> str:
    """Return the first line of an output that is not blank, or ``no message``."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")
