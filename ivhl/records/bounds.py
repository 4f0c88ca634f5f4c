"""Numbers, times and names that no measurement gives. A record with one counts as unreadable.

JSON and Python know numbers that arithmetic does not: ``10**400`` is no float, ``5e-324`` has no
reciprocal, the logarithm of zero does not exist. One such number would stop the page or the table of
all other records, so the bounds hold wherever a record is read: in the results and at import.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from ivhl.records import record as parts
from ivhl.records.record import Arm, Interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.records.record import RunRecord

# Far outside of what can be measured, far inside of what a float can hold: squares, sums over all
# records and ratios of ratios stay finite.
_MOST = 2**60
_MOST_COUNTED = 2**40  # of one reason: the sum over all of a record fits into 64 bits
_LONGEST_S = 1e9
_SHORTEST_S = 1e-12  # of a call; less than a cycle of any processor
_MOST_TIMES = 1e9
_LARGEST = 1e75
_LEAST_CONFIDENCE = 0.5
_LONGEST_CELL = 200  # it is a part of names of files
_SHOWN = 100
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NUMBERS = (int, float)


def impossible(record: RunRecord) -> list[str]:
    """Return each value of a record that no measurement gives: place, rule and value."""
    found: list[str] = []
    _check(record, "", found)
    if not _COMMIT.fullmatch(record.commit):
        found.append(f"commit: must be 40 or 64 hex digits (got {_got(record.commit)})")
    cell = record.cell
    if cell.id != (made := f"py{cell.python}-torch{cell.torch}"):
        rule = f"cell.id: must follow from Python and PyTorch: {_got(made)}"
        found.append(f"{rule} (got {_got(cell.id)})")
    elif len(cell.id.encode()) > _LONGEST_CELL:
        rule = f"cell.id: must have at most {_LONGEST_CELL} bytes"
        found.append(f"{rule} (got {_got(cell.id)})")
    if not _is_utc(record.recorded_at):
        found.append(
            "recorded_at: must be UTC to the second, as 2026-11-20T15:03:52+00:00 "
            f"(got {_got(record.recorded_at)})"
        )
    return found


def _check(part: Any, place: str, found: list[str]) -> None:  # noqa: ANN401  (any part of a record)
    """Append the mistakes of a part. Every view reads every record, so this must take little."""
    kind: type = type(part)
    if kind is Interval:
        found += _interval_mistakes(part, place)
    for name in _with_numbers(kind):
        value = getattr(part, name)
        if value is None:
            continue
        if type(value) in _NUMBERS:
            _check_number(value, place, name, found)
        elif isinstance(value, tuple):
            _check_tuple(value, place, name, found)
        elif isinstance(value, dict):
            _check_tuple(tuple(value.values()), place, name, found)
        else:
            _check(value, _below(place, name), found)
    if kind is Arm and not part.samples_s:
        found.append(f"{place}.samples_s: must hold positive seconds (got none)")


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _check_tuple(values: tuple[Any, ...], place: str, name: str, found: list[str]) -> None:
    if not values:
        return
    if type(values[0]) not in _NUMBERS:
        for number, value in enumerate(values):
            _check(value, f"{_below(place, name)}.{number}", found)
    else:  # the extremes are within the bounds if all are
        _check_number(min(values), place, name, found)
        _check_number(max(values), place, name, found)


def _check_number(value: float, place: str, name: str, found: list[str]) -> None:
    if name == "samples_s":
        if not _SHORTEST_S <= value <= _LONGEST_S:
            found.append(
                f"{_below(place, name)}: must hold positive seconds, from {_SHORTEST_S:.0e} to "
                f"{_LONGEST_S:.0e} (got {_got(value)})"
            )
        return
    most: float = _MOST if isinstance(value, int) else _LARGEST
    if name.endswith("_s"):
        most = _LONGEST_S
    if name == "count":
        most = _MOST_COUNTED
    if not 0 <= value <= most:
        here = _below(place, name)
        found.append(f"{here}: must be from 0 to {most:.0e} (got {_got(value)})")
    elif 0 < value < 1 / _LARGEST:
        here = _below(place, name)
        found.append(f"{here}: must be 0, or from {1 / _LARGEST:.0e} (got {_got(value)})")


def _interval_mistakes(part: Interval, place: str) -> Iterator[str]:
    if not 1 / _MOST_TIMES < part.low <= part.value <= part.high < _MOST_TIMES:
        interval = f"{part.value} in [{part.low}, {part.high}]"
        yield f"{place}: must be positive and inside its interval (got {interval})"
    if not _LEAST_CONFIDENCE <= part.confidence <= 1 - 1e-9:
        yield (
            f"{place}.confidence: must be from {_LEAST_CONFIDENCE} to less than 1 "
            f"(got {_got(part.confidence)})"
        )


@cache
def _with_numbers(kind: type) -> tuple[str, ...]:
    """Return the fields of a part of a record that hold a number, or parts that may."""
    kinds = "|".join(name for name, one in vars(parts).items() if is_dataclass(one))
    holds = re.compile(rf"\b(int|float|{kinds})\b")
    return tuple(field.name for field in fields(kind) if holds.search(str(field.type)))


def _is_utc(text: str) -> bool:
    # Overflow: the first hours of the year 1 are in the year 0 elsewhere, and Python has none.
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text)
        return (
            moment.tzinfo is not None
            and moment.astimezone(UTC).isoformat(timespec="seconds") == text
        )
    return False


def _got(value: object) -> str:
    try:
        text = ascii(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits
        return "an integer of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
