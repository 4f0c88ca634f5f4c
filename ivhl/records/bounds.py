"""Numbers, times and texts that no measurement gives. A record with one counts as unreadable.

JSON and Python know numbers that arithmetic does not: ``10**400`` is no float, ``5e-324`` has no
reciprocal, the logarithm of zero does not exist. Texts of a record reach names of files, git,
shells and pages. One such value would stop the page or the table of all other records, so
``reader`` applies the bounds wherever a record is read: in the results, in a cell
and at import.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from ivhl.records.record import LARGEST_VALUE, Arm, Cell, Interval, Phase, RunRecord
from ivhl.records.text import is_printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Far outside of what can be measured, far inside of what a float can hold: squares, sums over all
# records and ratios of ratios stay finite.
_MOST = 2**60
_MOST_COUNTED = 2**40  # of one reason: the sum over all of a record fits into 64 bits
_LONGEST_S = 1e9
_SHORTEST_S = 1e-12  # of a call; less than a cycle of any processor
_MOST_TIMES = 1e9
_LARGEST = LARGEST_VALUE
_LEAST = 1 / _LARGEST
_ALWAYS = 1e9  # what every number of a record may be at least
_LEAST_CONFIDENCE = 0.5
_SHOWN = 100
# Lengths in bytes, since that is what file systems count: names become parts of paths, which have at
# most 255 in a part, and so do processor and system in asv's graphs.
_LONGEST_NAME = 100
_LONGEST_VERSION = 50  # two of them and the rest of asv's names of files have at most 255
_LONGEST_SHORT = 200
SHORT_SIGNS = 100
_LONGEST_LINE = 1000  # of what is one line on a page; the longest in this repository has 96
_LONGEST_TEXT = 2**16  # of messages and output; the longest in this repository has 3,104


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """The rule of a text.

    Attributes:
        rule: The rule, as the end of ``must ...``.
        longest: Bytes that it may have.
        is_right: Whether a text follows the rule; ``None`` if its length is the only rule.
    """

    rule: str
    longest: int
    is_right: Callable[[str], object] | None = None

    def mistake(self, text: str) -> str:
        """Return the rule that a text breaks; empty if none."""
        said = f"must {self.rule}" if self.is_right else f"must have at most {self.longest} bytes"
        if len(text) > self.longest:  # before anything looks at it, or keeps it
            return said
        if not text.isascii():
            try:
                if len(text.encode()) > self.longest:
                    return said
            except UnicodeEncodeError:
                return "must have no half of a character"
        return "" if self.is_right is None or self.is_right(text) else said


def _matches(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).fullmatch


def _printable_as(pattern: str) -> Callable[[str], bool]:
    matches = _matches(pattern)
    return lambda text: is_printable(text) and matches(text) is not None


def _is_utc(text: str) -> bool:
    # Overflow: the first hours of the year 1 are in the year 0 elsewhere, and Python has none.
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text)
        return (
            moment.tzinfo is not None
            and moment.astimezone(UTC).isoformat(timespec="seconds") == text
        )
    return False


_FREE: Final = Text("", _LONGEST_TEXT)
_FREE_LINE: Final = Text("", _LONGEST_LINE)
_LINE: Final = Text(
    f"be one line of at most {_LONGEST_LINE} bytes that can be printed",
    _LONGEST_LINE,
    _printable_as(r".*\S.*"),
)
_SHORT: Final = Text(
    "be a short text", _LONGEST_SHORT, _printable_as(rf"(?=.*\S).{{1,{SHORT_SIGNS}}}")
)
_NAME: Final = Text(
    f"be a name without spaces, '/' and ',' of at most {_LONGEST_NAME} bytes",
    _LONGEST_NAME,
    _printable_as(r"[^\s/,]+"),
)
MACHINE_NAME: Final = Text(
    f"have at most {_LONGEST_NAME} bytes of letters, digits, '_', '-' and '.', not begin with '-' "
    "or '.', and not end in .json or .jsonl",
    _LONGEST_NAME,
    # asv takes everything in the results with this ending for one of its files.
    _printable_as(r"(?!.*\.jsonl?\Z)\w[\w.-]*"),  # letters can be blank
)
_VERSION: Final = Text("be a version", _LONGEST_VERSION, _matches("[0-9][0-9A-Za-z.+]*"))
_COMMIT: Final = Text("be 40 or 64 hex digits", 64, _matches("[0-9a-f]{40}(?:[0-9a-f]{24})?"))
_SHA256: Final = Text("be 64 hex digits", 64, _matches("[0-9a-f]{64}"))
_TIME: Final = Text("be UTC to the second, as 2026-11-20T15:03:52+00:00", _LONGEST_NAME, _is_utc)
PHASES: Final = frozenset((*get_args(Phase), "start", "waiting"))

# Every text of a record, by class and field; a field that is not here cannot be read.
TEXTS: Final = {
    "Counted.text": _FREE,
    "CompileFacts.cold_at": _TIME,
    "OutputError.output": _FREE_LINE,
    "OutputError.dtype": Text("be the name of a dtype of torch", 30, _matches("[a-z][a-z0-9_]*")),
    "Failure.exception": _FREE_LINE,
    "Failure.message": _FREE,
    "Failure.where": _FREE_LINE,
    "Failure.output_tail": _FREE,
    "Cell.id": Text("follow from Python and PyTorch", 2 * _LONGEST_VERSION + len("py-torch")),
    "Cell.python": _VERSION,
    "Cell.torch": _VERSION,
    "Cell.lock_sha256": _SHA256,
    "Machine.name": MACHINE_NAME,
    "Machine.cpu": _SHORT,
    "Machine.system": _SHORT,
    "RecordedObservation.check": _LINE,
    "RecordedObservation.seen": _LINE,
    "Wheel.name": _SHORT,
    "Wheel.version": _SHORT,
    "Wheel.build": _SHORT,
    "Wheel.tags": _SHORT,
    "Wheel.record_sha256": _SHA256,
    "Conditions.device": Text(
        "be cpu, or another type of device of PyTorch and the name of the device",
        _LONGEST_SHORT,
        _printable_as(rf"cpu|(?!cpu\b)[a-z]+(?: .{{1,{SHORT_SIGNS}}})?"),
    ),
    "Conditions.instrument": Text("be a version or a digest", 64, _matches("[0-9a-f]{1,64}")),
    "Conditions.python_full": _LINE,
    "Conditions.torch_full": _LINE,
    "Conditions.packages": Text(
        "be NAME==VERSION", _LONGEST_SHORT, _printable_as(r"[^\s=]+==[^\s=]*")
    ),
    "Conditions.image": Text("be sha256: and 64 hex digits", 71, _matches("sha256:[0-9a-f]{64}")),
    # As ``ivhl.measure.flags`` writes them.
    "Conditions.flags": Text(
        "be PART.FIELD=VALUE with dynamo, functorch or inductor as the part",
        _LONGEST_LINE,
        _printable_as(r"(?:dynamo|functorch|inductor)\.[A-Za-z_][\w.]*=.+"),
    ),
    "Conditions.python_build": _LINE,
    "RunRecord.recorded_at": _TIME,
    "RunRecord.project": _LINE,
    "RunRecord.commit": _COMMIT,
    "RunRecord.workload": _NAME,
    "RunRecord.size": _NAME,
    "RunRecord.variant": _NAME,
    "RunRecord.mode": _SHORT,
    "RunRecord.dtype": _SHORT,
    "RunRecord.command": Text(
        f"be one line of at most {_LONGEST_TEXT} bytes that can be printed",
        _LONGEST_TEXT,
        is_printable,
    ),
    "RunRecord.engine": _SHORT,
    "RunRecord.sources": _SHA256,
    "RunRecord.benchmark": _SHA256,
    "RunRecord.phase_s": Text("be a phase of a case", _LONGEST_NAME, PHASES.__contains__),
    "RunRecord.same_as": _COMMIT,
}
# How many parts a field may have, where a page has a line for each.
MOST_PARTS: Final = {"Conditions.stability": 200, "Conditions.wheels": 20, "Wheel.tags": 50}


class Mistake(NamedTuple):
    """A value that no record has.

    Attributes:
        place: Names and numbers that lead to it.
        text: The rule that it breaks, and its value.
    """

    place: tuple[str, ...]
    text: str

    def below(self, name: str) -> Mistake:
        """Return the same mistake as that of a part of the record."""
        return self._replace(place=(name, *self.place))

    def __str__(self) -> str:
        """Return place, rule and value, of bounded length."""
        place = ".".join(map(_shortened, self.place))
        return f"{place}: {self.text}" if place else self.text


def number_mistake(name: str, value: float) -> str:
    """Return the rule that a number breaks; empty if none.

    Args:
        name: Name of its field.
        value: An integer if the field takes integers.
    """
    if name == "samples_s":
        if _SHORTEST_S <= value <= _LONGEST_S:
            return ""
        return f"must hold positive seconds, from {_SHORTEST_S:.0e} to {_LONGEST_S:.0e}"
    if _LEAST <= value <= _ALWAYS or value == 0:
        return ""
    most: float = _MOST if isinstance(value, int) else _LARGEST
    if name.endswith("_s"):
        most = _LONGEST_S
    elif name == "count":
        most = _MOST_COUNTED
    least = -most if name == "values" else 0
    if not least <= value <= most:
        return f"must be from {least:.0g} to {most:.0e}"
    if 0 < value < _LEAST:
        return f"must be 0, or from {_LEAST:.0e}"
    return ""


def mistakes_between(part: object) -> Iterator[Mistake]:
    """Yield what is wrong between the fields of a part of a record, whose types are right."""
    if isinstance(part, Interval):
        if not 1 / _MOST_TIMES < part.low <= part.value <= part.high < _MOST_TIMES:
            interval = f"{part.value} in [{part.low}, {part.high}]"
            yield Mistake((), f"must be positive and inside its interval (got {interval})")
        if not _LEAST_CONFIDENCE <= part.confidence <= 1 - 1e-9:
            rule = f"must be from {_LEAST_CONFIDENCE} to less than 1"
            yield Mistake(("confidence",), f"{rule} (got {shown(part.confidence)})")
    elif isinstance(part, Arm) and not part.samples_s:
        yield Mistake(("samples_s",), "must hold positive seconds (got none)")
    elif isinstance(part, Cell) and part.id != (made := f"py{part.python}-torch{part.torch}"):
        rule = f"must follow from Python and PyTorch: {shown(made)}"
        yield Mistake(("id",), f"{rule} (got {shown(part.id)})")
    elif isinstance(part, RunRecord):
        if part.workload_version < 1:
            got = shown(part.workload_version)
            yield Mistake(("workload_version",), f"must be at least 1 (got {got})")
        for name in ("eager", "compiled", "compile") if part.speedup is not None else ():
            if getattr(part, name) is None:
                yield Mistake((name,), "required if there is a speedup (got null)")


def shown(value: Any) -> str:  # noqa: ANN401  (whatever JSON holds)
    """Return a value as a message shows it, of bounded length."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    try:
        return _shortened(ascii(value[: _SHOWN + 1] if isinstance(value, str) else value))
    except ValueError:  # Python prints no integer of more than 4,300 digits
        return "an integer of thousands of digits"


def _shortened(text: str) -> str:
    text = text if text.isascii() and is_printable(text) else ascii(text[:_SHOWN])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
