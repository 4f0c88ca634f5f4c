"""Whether the parts of a record have the types of their fields, where pydantic is not installed."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN = 60


def misfits(part: object, place: str = "") -> Iterator[str]:
    """Yield each value of a record that has another type than its field: place, rule and value."""
    whole: type = type(part)
    for name, kind in _hints(whole).items():
        value = getattr(part, name)
        here = f"{place}.{name}" if place else name
        if not _is_a(value, kind):
            rule = kind if get_origin(kind) else kind.__name__
            yield f"{here}: must be {rule} (got {value!r:.{_SHOWN}})"
        elif is_dataclass(value):
            yield from misfits(value, here)
        elif isinstance(value, tuple):
            for number, one in enumerate(value):
                if is_dataclass(one):
                    yield from misfits(one, f"{here}.{number}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _is_a(value: object, kind: Any) -> bool:  # noqa: ANN401  (a type, or what typing has for one)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in inner
    if origin in (Union, UnionType):
        return any(_is_a(value, one) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_a(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            _is_a(k, inner[0]) and _is_a(v, inner[1]) for k, v in value.items()
        )
    if kind is float:
        return type(value) in (int, float)
    return value is None if kind is NoneType else type(value) is kind
