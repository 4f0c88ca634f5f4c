"""How a script ended in a cell, and whether two endings are alike.

Two are alike if they have the same exit status, exception and printed text. Exceptions of the
compiler are compared by their class, since releases rename and reword them; others by type and
message. In a text, addresses, folders and the version of torch are left out, and numbers are
compared with a tolerance; a number that differs between two runs in the same cell, such as a
duration, is not compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ivhl.measure.failures import BY_TYPE
from ivhl.records.text import tidy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TOLERANCE: Final = 1e-3
_NUMBER: Final = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w.]*\w)")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST: Final = 1 << 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a script ended.

    Attributes:
        ending: ``exit N``, the name of a signal, or ``did not end within N s``; why the cell cannot
            exist if it cannot.
        exception: Type of the exception that ended it, with its module; empty without one.
        message: Its message.
        frames: File, line and function of its traceback, outermost first.
        output: What it printed, up to 128 KiB.
        errors: The same of standard error.
        graphs: Graphs that went to a backend; ``None`` if the process left no account.
        graph_breaks: Of the process, frames that run eagerly included; ``None`` likewise.
        recompiles: The same; ``None`` also if the script reset Dynamo.
        reasons: Those of graph breaks.
        seconds: From start to end, with all imports.
        runs: How often it was run.
        flaky: Whether two runs in this cell ended otherwise.
    """

    ending: str
    exception: str = ""
    message: str = ""
    frames: tuple[tuple[str, int, str], ...] = ()
    output: str = ""
    errors: str = ""
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    runs: int = 1
    flaky: bool = False

    @property
    def first_line(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0].strip()

    @property
    def has_run(self) -> bool:
        """Whether the cell exists."""
        return self.runs > 0

    def again(self, other: Outcome) -> Outcome:
        """Return this outcome after another run in the same cell."""
        alike = are_alike(self, other, noisy_numbers(self, other))
        return replace(self, runs=self.runs + 1, flaky=self.flaky or not alike)


def not_run(why: str) -> Outcome:
    """Return the outcome of a cell that cannot exist."""
    return Outcome(ending=why, runs=0)


def signature(outcome: Outcome, torch: str = "") -> tuple[str, ...]:
    """Return what has to be equal: ending, exception, and the texts without their numbers.

    Args:
        outcome: Its cell's outcome.
        torch: Release, whose own name in a text is left out.
    """
    kind = outcome.exception.rpartition(".")[2]
    return (
        outcome.ending,
        BY_TYPE.get(kind, kind),
        *(_NUMBER.sub("#", text) for text in _texts(outcome, torch)),
    )


def numbers(outcome: Outcome, torch: str = "") -> tuple[float, ...]:
    """Return the numbers in the texts of an outcome, in order."""
    return tuple(float(n) for text in _texts(outcome, torch) for n in _NUMBER.findall(text))


def are_alike(
    one: Outcome, other: Outcome, noisy: Iterable[int] = (), torch: Sequence[str] = ("", "")
) -> bool:
    """Return whether two outcomes are alike.

    Args:
        one: An outcome.
        other: Another one.
        noisy: Places of numbers that are not compared; see ``noisy_numbers``.
        torch: Release of each.
    """
    if signature(one, torch[0]) != signature(other, torch[1]):
        return False
    return not _differing(numbers(one, torch[0]), numbers(other, torch[1])) - set(noisy)


def noisy_numbers(one: Outcome, other: Outcome) -> frozenset[int]:
    """Return the places of numbers that differ between two runs in the same cell.

    Empty if their texts differ otherwise: then the script is flaky.
    """
    if signature(one) != signature(other):
        return frozenset()
    return frozenset(_differing(numbers(one), numbers(other)))


def _differing(one: Sequence[float], other: Sequence[float]) -> set[int]:
    def is_near(a: float, b: float) -> bool:
        return a == b or abs(a - b) <= TOLERANCE * max(abs(a), abs(b))

    return {i for i, (a, b) in enumerate(zip(one, other, strict=True)) if not is_near(a, b)}


def _texts(outcome: Outcome, torch: str) -> tuple[str, str]:
    """Return the message of an exception and what was printed, as far as they are compared."""
    # Each release words the messages of the compiler anew.
    is_compilers = outcome.exception.rpartition(".")[2] in BY_TYPE
    message = "" if is_compilers else outcome.first_line
    return _comparable(message, torch), _comparable(outcome.output, torch)


def _comparable(text: str, torch: str) -> str:
    return tidy(_without_release(_COLOUR.sub("", text), torch), _LONGEST)


def _without_release(text: str, torch: str) -> str:
    """Return a text without the version of torch, also with its local part: ``2.6.0+cu124``."""
    if not torch:
        return text
    return re.sub(rf"(?<![\w.]){re.escape(torch)}(?:\+\w+)?(?![\w.]*\w)", "TORCH", text)
