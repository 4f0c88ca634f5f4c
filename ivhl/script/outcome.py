"""How a script ended in a cell, and whether two endings are alike.

Two are alike if they have the same exit status, exception and printed text; of an exit status other
than 0 without an exception, also the same last line of standard error. Exceptions of torch are
compared by their type, and those of the compiler by their class, since releases rename and reword
them; others by type and message. In a text, addresses, folders and the versions of torch are left
out, and blanks count no further than that there are some: the width of a number pads it. Numbers
with a point are compared with a tolerance, integers exactly, units as texts. A number that differs
between two runs in the same cell, such as a duration, is not compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ivhl.measure.failures import BY_TYPE, headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TOLERANCE: Final = 1e-3
# Differences of numbers below it do not count: an error of 1e-9 is as good as none.
SMALL: Final = 1e-6
# Letters may follow: a unit, or the j of a complex number, whose sign may follow a digit. Words stay
# words: versions, shapes such as 2x3, and hashes, which have only digits and the letters a to f.
# The quantifiers are possessive because a word may have a million characters.
_NUMBER: Final = re.compile(
    r"""
    (?: (?<![\w.])[-+]? | (?<=[\d.])[-+](?=\d[\d.]*+(?:[eE][-+]?\d++)?j\b) )
    \d++ (?: \.\d*+ (?:[eE][-+]?\d++)? | [eE][-+]\d++ )?
    (?= (?: (?<=\d) (?![a-f]++\b) [^\W\d_]++ )? (?![\w.]*\w) )
    """,
    re.VERBOSE,
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
# As Python writes the place of an object; a checksum in hexadecimal stays.
_ADDRESS: Final = re.compile(r"(?<=\bat )0x[0-9a-fA-F]+")
_FOLDERS: Final = re.compile(r"(?<![\w./])/(?:[^\s/:'\"]+/)+(?=[^\s/:'\"]+)")
# What PyTorch logs; what Python warns of, and the line of code below it.
_LOGGED: Final = re.compile(r"^(?:\[rank\d+\]:)?\[?[VIWE]\d{4} [\d:.]+ .*\n?", re.MULTILINE)
_WARNED: Final = re.compile(r"^\S+:\d+: \w*Warning: .*\n?(?:[ \t].*\n?)?", re.MULTILINE)
# Where memory is corrupt, chance says when a process ends, by which signal, and what it has printed.
CRASHES: Final = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV"})
# How the ending of a script begins that reached its time limit: chance says where it was.
LATE: Final = "did not end within"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptOutcome:
    """How a script ended.

    Attributes:
        ending: ``exit N``, the name of a signal, or ``did not end within N s``; why the cell cannot
            exist if it cannot.
        exception: Type of the exception that ended it, with its module; empty without one.
        message: Its message; of an exit status without an exception the last line of standard
            error, without logs and warnings; of a time limit the CPU seconds.
        inner: Type and message of the first exception, from which it was raised; empty without one.
        frames: File, line and function of its traceback, outermost first.
        output: What it printed; of more than 2 MiB the beginning and the end.
        errors: The same of standard error.
        graphs: Graphs that went to a backend; ``None`` if the process left no account.
        graph_breaks: Of the process, frames that run eagerly included; ``None`` likewise.
        recompiles: The same; ``None`` also if the script reset Dynamo.
        reasons: Those of graph breaks.
        failed_guards: Why code was compiled again, each guard once.
        left_out: Hash of the middle of a very long output; empty if all was kept.
        seconds: From start to end, with all imports.
        runs: How often it was run.
        flaky: Whether two runs in this cell ended otherwise.
    """

    ending: str
    exception: str = ""
    message: str = ""
    inner: tuple[str, str] = ("", "")
    frames: tuple[tuple[str, int, str], ...] = ()
    output: str = ""
    errors: str = ""
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    reasons: tuple[str, ...] = ()
    failed_guards: tuple[str, ...] = ()
    left_out: str = ""
    seconds: float = 0.0
    runs: int = 1
    flaky: bool = False

    @property
    def first_line(self) -> str:
        """The line of the message that says what is wrong."""
        return headline(self.message)

    @property
    def innermost(self) -> tuple[str, str]:
        """Type and message of the first exception; its own if it was raised from no other."""
        return self.inner if self.inner[0] else (self.exception, self.message)

    @property
    def has_run(self) -> bool:
        """Whether the cell exists."""
        return self.runs > 0

    def again(self, other: ScriptOutcome) -> ScriptOutcome:
        """Return this outcome after another run in the same cell."""
        alike = are_alike(self, other, noisy_numbers(self, other))
        return replace(self, runs=self.runs + 1, flaky=self.flaky or not alike)


def not_run(why: str) -> ScriptOutcome:
    """Return the outcome of a cell that cannot exist."""
    return ScriptOutcome(ending=why, runs=0)


def ending(outcome: ScriptOutcome) -> str:
    """Return the exception of a script, its signal or its exit status, with the message."""
    kind = outcome.exception.rpartition(".")[2] or outcome.ending
    return f"{kind}: {outcome.first_line}".rstrip(": ")


def without_logs(errors: str) -> str:
    """Return standard error without what PyTorch logs and what Python warns of."""
    return _WARNED.sub("", _LOGGED.sub("", errors))


def signature(outcome: ScriptOutcome, releases: Sequence[str] = ()) -> tuple[object, ...]:
    """Return what has to be equal: ending, exception, and the texts between their numbers.

    Args:
        outcome: Its cell's outcome.
        releases: Releases of torch, whose names in a text are left out.
    """
    return (
        "crash" if outcome.ending in CRASHES else outcome.ending,
        failure_class(outcome),
        # A number as wide as its column has no blank beside it.
        *(
            tuple(part.strip(" ") for part in _NUMBER.split(text))
            for text in _texts(outcome, releases)
        ),
        "" if _is_cut_off(outcome) else outcome.left_out,
    )


def failure_class(outcome: ScriptOutcome) -> str:
    """Return the class of the compiler's exception, or the type of another one."""
    kind = outcome.exception.rpartition(".")[2]
    if kind == "Unsupported" and "cache_size_limit reached" in outcome.message:  # up to 2.5
        kind = "CacheLimitExceeded"
    return BY_TYPE.get(kind, kind)


def numbers(outcome: ScriptOutcome, releases: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the numbers in the texts of an outcome, in order, as they are written."""
    return tuple(n for text in _texts(outcome, releases) for n in _NUMBER.findall(text))


def are_alike(
    one: ScriptOutcome,
    other: ScriptOutcome,
    noisy: Iterable[int] = (),
    releases: Sequence[str] = (),
) -> bool:
    """Return whether two outcomes are alike.

    Args:
        one: An outcome.
        other: Another one.
        noisy: Places of numbers that are not compared; see ``noisy_numbers``.
        releases: Release of each.
    """
    found = differing_numbers(one, other, releases)
    return found is not None and not found.keys() - set(noisy)


def noisy_numbers(
    one: ScriptOutcome, other: ScriptOutcome, releases: Sequence[str] = ()
) -> frozenset[int]:
    """Return the places of numbers that differ between two runs in the same cell.

    Empty if their texts differ otherwise: then the script is flaky.
    """
    return frozenset(differing_numbers(one, other, releases) or ())


def differing_numbers(
    one: ScriptOutcome, other: ScriptOutcome, releases: Sequence[str] = ()
) -> dict[int, tuple[float, float]] | None:
    """Return the numbers that differ, by their places; ``None`` if the texts differ otherwise."""
    if signature(one, releases) != signature(other, releases):
        return None
    pairs = enumerate(zip(numbers(one, releases), numbers(other, releases), strict=True))
    return {i: (float(a), float(b)) for i, (a, b) in pairs if not _is_near(a, b)}


def _is_near(a: str, b: str) -> bool:
    if a == b:
        return True
    if not (set(a) | set(b)) & set(".eE"):  # integers count something
        return False
    x, y = float(a), float(b)
    return abs(x - y) <= max(TOLERANCE * max(abs(x), abs(y)), SMALL)


def _is_cut_off(outcome: ScriptOutcome) -> bool:
    """Return whether chance says how much of its text a script has printed."""
    return outcome.ending in CRASHES or outcome.ending.startswith(LATE)


def _texts(outcome: ScriptOutcome, releases: Sequence[str]) -> tuple[str, str]:
    """Return the message of an exception and what was printed, as far as they are compared."""
    if _is_cut_off(outcome):
        return "", ""
    # Each release words the messages of the compiler anew.
    kind = outcome.exception
    is_compilers = kind.startswith("torch.") or kind.rpartition(".")[2] in BY_TYPE
    message = "" if is_compilers else outcome.message
    return _comparable(message, releases), _comparable(outcome.output, releases)


def _comparable(text: str, releases: Sequence[str]) -> str:
    """Return a text without colours, addresses, folders and releases (also ``2.6.0+cu124``)."""
    found = _FOLDERS.sub("", _ADDRESS.sub("0x", _COLOUR.sub("", text)))
    for release in releases:
        pattern = rf"(?<![\w.]){re.escape(release)}(?:\+\w+)?(?![\w.]*\w)"
        found = re.sub(pattern, "TORCH", found)
    return re.sub(r"[ \t]+", " ", found).strip()
