"""Settings of the compiler with which a case is measured, e.g. ``inductor.cpp.simdlen=1``."""

from __future__ import annotations

import re
from ast import literal_eval
from functools import reduce
from importlib import import_module
from types import ModuleType, NoneType
from typing import Any, Final, NamedTuple, get_args

from ivhl.errors import SpecError

_FLAG: Final = re.compile(
    r"(?:torch\.)?(?:_?(?P<part>dynamo|functorch|inductor)(?:\.config)?)\.(?P<field>[A-Za-z_][\w.]*)"
    r"=(?P<value>.+)",
    re.DOTALL,
)


class Flag(NamedTuple):
    """One setting.

    Attributes:
        module: E.g. ``torch._inductor.config``.
        field: Its name in the module, e.g. ``cpp.simdlen``.
    """

    module: str
    field: str
    value: Any

    def __str__(self) -> str:
        """Return it as it is written, e.g. ``inductor.cpp.simdlen=1``."""
        part = self.module.split(".")[1].removeprefix("_")
        return f"{part}.{self.field}={self.value!r}"


class NoSuchFlagError(Exception):
    """This release has no such setting, or not with such a value."""


# What the message of a case begins with whose flag cannot be set.
FLAG_REFUSED: Final = "--flag: "
# Types of a value that holds further settings, as ``inductor.cpp`` does.
_GROUPS: Final = {"SubConfigProxy", "ConfigModuleInstance"}
_WORDS: Final = {"true": "True", "false": "False", "none": "None"}


def parse_flag(text: str) -> Flag:
    """Return the setting that a text names.

    Args:
        text: ``PART.FIELD=VALUE`` with ``dynamo``, ``functorch`` or ``inductor`` as the part, also
            as ``ivhl blame`` prints it (``_inductor.config.FIELD=VALUE``). ``true`` and ``false``
            are what they say; another value that is no literal of Python is a text.

    Raises:
        SpecError: If it is not of this form.
    """
    found = _FLAG.fullmatch(text)
    if found is None:
        raise SpecError(
            f"--flag: must be PART.FIELD=VALUE with dynamo, functorch or inductor as the part "
            f"(got {text!r})",
            hint="e.g. --flag inductor.cpp.simdlen=1",
        )
    try:
        text = _WORDS.get(found["value"].lower(), found["value"])
        value = literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = found["value"]
    return Flag(f"torch._{found['part']}.config", found["field"], value)


def set_flag(flag: Flag) -> Any:  # noqa: ANN401  (settings are of any type)
    """Set a setting in this process, and return what it was.

    Raises:
        NoSuchFlagError: If this release has no such setting.
    """
    *path, name = flag.field.split(".")
    try:
        holder: Any = reduce(getattr, path, import_module(flag.module))
        before = getattr(holder, name)
    except (ImportError, AttributeError) as error:
        raise NoSuchFlagError(f"this release has no {flag.module}.{flag.field}") from error
    if isinstance(before, type | ModuleType) or type(before).__name__ in _GROUPS:
        raise NoSuchFlagError(f"{flag.module}.{flag.field} is a group of settings: name one in it")
    # A text would be true wherever it is asked for a switch.
    if isinstance(flag.value, str) and (
        isinstance(before, bool | int | float) or (before is None and not _may_be_text(flag))
    ):
        raise NoSuchFlagError(
            f"{flag.module}.{flag.field} is {before!r}, which no text can replace (got "
            f"{flag.value!r})"
        )
    try:
        setattr(holder, name, flag.value)
    except (AttributeError, TypeError, ValueError) as error:
        raise NoSuchFlagError(f"{flag.module}.{flag.field}: {error}") from error
    return before


def _may_be_text(flag: Flag) -> bool:
    """Return whether a setting that is not set may be a text, by its type (from 2.6.0 on)."""
    get_type = getattr(import_module(flag.module), "get_type", None)
    members = get_args(get_type(flag.field)) if get_type is not None else ()
    # Of ``int | None``; a literal or a callable says more than that.
    return not members or not set(members) <= {bool, int, float, NoneType}
