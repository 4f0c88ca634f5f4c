"""Read a record from its line of JSON: all that reads records calls this, in a cell and beside it.

The fields of ``records.record`` say which types there are, ``records.bounds`` which numbers and
texts a measurement gives. Standard library only, since a cell has nothing else.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import MISSING, fields
from math import isnan
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from ivhl.records.bounds import (
    MOST_PARTS,
    TEXTS,
    Mistake,
    Text,
    mistakes_between,
    number_mistake,
    shown,
)
from ivhl.records.lines import LONGEST_LINE, MOST_NAMED, Line, lines_of
from ivhl.records.record import SCHEMA, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    # From what JSON holds to a value of a record; raises _WrongError.
    Read = Callable[[Any], Any]

_SHOWN_MISTAKES = 3


class NewerSchemaError(ValueError):
    """A record with a newer schema than this ivhl knows.

    Attributes:
        rule: The rule that it breaks, with the value seen.
        hint: What to do next.
    """

    def __init__(self, schema: str) -> None:
        self.rule = f"schema: must be {SCHEMA!r} or older (got {shown(schema)})"
        self.hint = "a newer ivhl wrote it: update ivhl"
        super().__init__(f"{self.rule}; {self.hint}")


class _WrongError(Exception):
    def __init__(self, *mistakes: Mistake) -> None:
        self.mistakes = mistakes


def read_record(line: bytes) -> RunRecord:
    """Return the record of a line of JSON.

    Raises:
        NewerSchemaError: If a newer ivhl wrote it.
        ValueError: If it is no record, or has a value that no measurement gives; names the field,
            the rule and the value, in a text of bounded length.
    """
    if len(line) > LONGEST_LINE:
        raise ValueError(f"must have at most {LONGEST_LINE} bytes (got {len(line)})")
    try:
        data = json.loads(line.decode())
    except RecursionError:
        raise ValueError("must be JSON: is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"must be JSON: {error}") from None
    try:
        record: RunRecord = _READ(data)
    except _WrongError as error:
        schema = data.get("schema") if isinstance(data, dict) else None
        if isinstance(schema, str) and _number(schema) > _number(SCHEMA):
            raise NewerSchemaError(schema) from None
        named = [*map(str, error.mistakes[:_SHOWN_MISTAKES])]
        if len(error.mistakes) > _SHOWN_MISTAKES:
            named.append(f"and {len(error.mistakes) - _SHOWN_MISTAKES} more")
        raise ValueError("; ".join(named)) from None
    return record


def records_in(
    data: bytes, start: int = 0, number: int = 0
) -> Iterator[tuple[Line, RunRecord | str]]:
    """Yield each line of a file of records, and its record or the rule that it breaks.

    Of lines that are no records, ``MOST_NAMED`` are named; the last of these, how many follow.

    Args:
        data: The content of the file.
        start: Bytes at its beginning that are passed over.
        number: Lines that these have.
    """
    named: list[tuple[Line, str]] = []
    more = 0
    for line in lines_of(data, start, number):
        try:
            yield line, read_record(line.data)
        except ValueError as error:
            if len(named) < MOST_NAMED:
                named.append((line, str(error)))
            else:
                more += 1
    if more:
        last, rule = named[-1]
        named[-1] = last, f"{rule}; and {more} more lines are no records"
    yield from named


def _number(schema: str) -> int:
    """Return N of the schema ``ivhl.run/N``, 0 for anything else."""
    match = re.fullmatch(r"ivhl\.run/([0-9]{1,9})", schema)
    return int(match[1]) if match else 0


def _of_dataclass(kind: type) -> Read:
    readers: dict[str, Read] = {}
    nothing: dict[str, None] = {}  # of the fields that may be null
    for name, hint in get_type_hints(kind).items():
        if get_origin(hint) is ClassVar:
            continue
        inner, optional = _without_none(hint)
        readers[name] = _of(inner, name, f"{kind.__name__}.{name}")
        if optional:
            nothing[name] = None

    def read(data: Any) -> Any:  # noqa: ANN401  (JSON)
        _refuse_unless(type(data) is dict, "must be an object", data)
        try:
            part = kind(
                **{
                    name: nothing[name] if value is None else readers[name](value)
                    for name, value in data.items()
                }
            )
        except (KeyError, TypeError, ValueError, _WrongError) as error:
            found = _mistakes_of(data, kind, readers, nothing)
            raise _WrongError(*found or (Mistake((), str(error)),)) from None
        if mistakes := tuple(mistakes_between(part)):
            raise _WrongError(*mistakes)
        return part

    return read


def _mistakes_of(
    data: dict[str, Any], kind: type, readers: Mapping[str, Read], nothing: Collection[str]
) -> list[Mistake]:
    """Return what is wrong with the fields of a part that cannot be read."""
    found: list[Mistake] = []
    for field in fields(kind):
        value = data.get(field.name, MISSING)
        if value is None and field.name in nothing:
            continue
        if value is not MISSING:
            try:
                readers[field.name](value)
            except _WrongError as error:
                found += (mistake.below(field.name) for mistake in error.mistakes)
        elif field.default is MISSING:
            found.append(Mistake((field.name,), "is missing"))
    unknown = sorted(data.keys() - readers.keys())
    found += (Mistake((name,), "is no field of a record") for name in unknown)
    return found


def _of(kind: Any, name: str, key: str) -> Read:  # noqa: ANN401  (a type, or what typing has for one)
    """Return what reads a value of a type.

    Args:
        kind: The type.
        name: Name of the field.
        key: The field in ``TEXTS`` and ``MOST_PARTS``.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _of_words(inner)
    if origin is tuple:
        if inner[0] is float:
            return _of_seconds(name)
        good = _GOOD.setdefault(TEXTS[key], set()) if inner[0] is str else set()
        return _of_parts(_of(inner[0], name, key), key, good)
    if origin is dict:
        return _of_mapping(_of(inner[0], name, key), _of(inner[1], name, key))
    return _OF[kind](name, key) if kind in _OF else _of_dataclass(kind)


def _without_none(kind: Any) -> tuple[Any, bool]:  # noqa: ANN401  (what typing has for a type)
    """Return a type without ``None``, and whether it had it."""
    if get_origin(kind) not in (Union, UnionType):
        return kind, False
    (inner,) = (part for part in get_args(kind) if part is not NoneType)
    return inner, True


def _refuse_unless(holds: bool, rule: str, value: object) -> None:  # noqa: FBT001
    if not holds:
        raise _WrongError(Mistake((), f"{rule} (got {shown(value)})"))


def _of_one(mistake_of: Callable[[Any], str], made: Callable[[Any], Any] | None = None) -> Read:
    """Return what reads a value by the function that returns the rule that it breaks."""

    def read(value: Any) -> Any:  # noqa: ANN401  (JSON)
        if mistake := mistake_of(value):
            _refuse_unless(False, mistake, value)  # noqa: FBT003
        return value if made is None else made(value)

    return read


def _of_words(words: tuple[str, ...]) -> Read:
    rule = f"must be {', '.join(map(repr, words[:-1]))} or {words[-1]!r}"
    return _of_one(lambda value: "" if type(value) is str and value in words else rule)


def _of_text(rule: Text) -> Read:
    good = _GOOD.setdefault(rule, set())

    def mistake_of(value: Any) -> str:  # noqa: ANN401  (JSON)
        if type(value) is not str:
            return "must be a text"
        if value not in good:
            if mistake := rule.mistake(value):
                return mistake
            if len(good) < _MOST_GOOD and len(value) < _LONGEST_GOOD:
                good.add(value)
        return ""

    return _of_one(mistake_of)


def _of_number(name: str) -> Read:
    rule = "must be a number"
    return _of_one(
        lambda value: number_mistake(name, value) if type(value) in (int, float) else rule, float
    )


def _of_seconds(name: str) -> Read:
    """Return what reads a list of numbers: a record has hundreds of them."""
    read_one = _of_number(name)

    def read(value: Any) -> tuple[float, ...]:  # noqa: ANN401  (JSON)
        _refuse_unless(type(value) is list, "must be a list", value)
        if not value:
            return ()
        # Of NaN, which JSON has not and Python reads, there is no minimum.
        if set(map(type, value)) != {float} or isnan(sum(value)):
            return tuple(map(read_one, value))
        read_one(min(value))  # the extremes are within the bounds if all are
        read_one(max(value))
        return tuple(value)

    return read


def _of_parts(read_one: Read, key: str, good: set[str]) -> Read:
    """Return what reads a list of parts; ``good`` has the texts that are known to be right."""
    most = MOST_PARTS.get(key)

    def read(value: Any) -> tuple[Any, ...]:  # noqa: ANN401  (JSON)
        _refuse_unless(type(value) is list, "must be a list", value)
        if most is not None:
            _refuse_unless(len(value) <= most, f"must have at most {most} parts", len(value))
        if good:
            with suppress(TypeError):  # of what is no key, and no text
                if good.issuperset(value):
                    return tuple(value)
        parts = []
        for number, one in enumerate(value):
            try:
                parts.append(read_one(one))
            except _WrongError as error:  # only the first: a line can consist of them
                raise _WrongError(*(m.below(f"{number}") for m in error.mistakes)) from None
        return tuple(parts)

    return read


def _of_mapping(read_name: Read, read_one: Read) -> Read:
    def read(value: Any) -> dict[str, Any]:  # noqa: ANN401  (JSON)
        _refuse_unless(type(value) is dict, "must be an object", value)
        return {read_name(name): read_one(one) for name, one in value.items()}

    return read


# By type, what reads a field with this name and key; the types are those of JSON, to the letter.
_OF: Final[dict[type, Callable[[str, str], Read]]] = {
    str: lambda _, key: _of_text(TEXTS[key]),
    bool: lambda *_: _of_one(lambda x: "" if type(x) is bool else "must be true or false"),
    int: lambda name, _: _of_one(
        lambda x: number_mistake(name, x) if type(x) is int else "must be an integer"
    ),
    float: lambda name, _: _of_number(name),
}
# Texts that were found right, by rule: most of them are those of many records.
_GOOD: Final[dict[Text, set[str]]] = {}
_MOST_GOOD = 4096
_LONGEST_GOOD = 200
_READ: Final = _of_dataclass(RunRecord)
