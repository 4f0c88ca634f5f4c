"""Settings of the compiler with which a case is measured, e.g. ``inductor.cpp.simdlen=1``."""

from __future__ import annotations

import re
from ast import literal_eval
from functools import reduce
from importlib import import_module
from typing import Any, Final, NamedTuple

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
    """This release has no such setting."""


def parse_flag(text: str) -> Flag:
    """Return the setting that a text names.

    Args:
        text: ``PART.FIELD=VALUE`` with ``dynamo``, ``functorch`` or ``inductor`` as the part, also
            as ``ivhl blame`` prints it (``_inductor.config.FIELD=VALUE``). A value that is no
            literal of Python is a text.

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
        value = literal_eval(found["value"])
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
        setattr(holder, name, flag.value)
    except (ImportError, AttributeError) as error:
        raise NoSuchFlagError(f"this release has no {flag.module}.{flag.field}") from error
    return before
