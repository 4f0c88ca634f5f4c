"""The parts of ``ivhl`` that measure: ``measure`` and what it imports, as its source says.

They are copied into a cell, and the hash of a case leaves them out (docs/adr/0041).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]
# Parsing all files would take half a second in each process; a test parses them and compares.
_IMPORT: Final = re.compile(rb"^ *(?:from|import) ivhl\.(\w+)", re.MULTILINE)


@cache
def harness() -> dict[str, Path]:
    """Return the file or folder of each part, by the part's name: ``git``, ``measure``."""
    parts: dict[str, Path] = {}
    new = {"measure"}
    while new:
        name = new.pop()
        folder = _PACKAGE / name
        parts[name] = folder if folder.is_dir() else folder.with_suffix(".py")
        files = folder.rglob("*.py") if folder.is_dir() else [parts[name]]
        new |= {part.decode() for file in files for part in _IMPORT.findall(file.read_bytes())}
        new -= parts.keys()
    return dict(sorted(parts.items()))


def is_harness(module: str) -> bool:
    """Return whether a module is measuring code, which has its own version.

    ``ivhl/__init__.py``, which only joins the folders of the package, belongs to it.
    """
    package, _, inner = module.partition(".")
    return package == "ivhl" and (not inner or inner.partition(".")[0] in harness())
