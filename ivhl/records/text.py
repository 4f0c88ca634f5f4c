"""Texts of records, as they are shown: on terminals, pages, in tables and in Markdown alike.

What a reader cannot see is written out: no text hides a part of itself, or turns what is around it.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Final
from unicodedata import category

# Every other character is looked up by itself.
_PLAIN: Final = re.compile(r"[^ -~\t\n]")
# Control and format characters (zero width, soft hyphen, direction, tags), halves of characters,
# private and unassigned ones, separators, spaces that look like the usual one: Unicode's general
# categories.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# What else fonts show as nothing: the code points of Unicode's property Default_Ignorable_Code_Point
# (DerivedCoreProperties.txt) that are letters or marks by their category; and a blank of Braille.
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# An escape in JSON that is all ASCII. A surrogate pair is one of them, a backslash another.
_JSON_ESCAPE: Final = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|.)")

# "at 0x7f..." and folders make two equal texts differ between runs and machines.
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,}")
# They also stand behind an option of a compiler without a space between: ``-I/usr/include/python``.
_FOLDERS: Final = re.compile(r"(?:(?<![\w./])|(?<=\s-[A-Z]))/(?:[^\s/:'\"]+/)+(?=[^\s/:'\"]+)")


def tidy(text: str, limit: int = 600) -> str:
    """Return a text without addresses and folders, so that equal texts compare equal."""
    return _FOLDERS.sub("", _ADDRESS.sub("0x…", text)).strip()[:limit]


def visible(text: str) -> str:
    r"""Return a text with each invisible character written out as Python would, e.g. ``\u202e``.

    Tabs and line breaks stay.
    """
    return _PLAIN.sub(lambda found: _shown(found[0]), text)


def printable(text: str) -> str:
    """Return a text on one line, with each invisible character written out."""
    return visible(text).replace("\t", "\\t").replace("\n", "\\n")


def is_printable(text: str) -> bool:
    """Return whether a text is on one line, and each of its characters can be seen."""
    return printable(text) == text


def visible_json(text: str) -> str:
    """Return JSON in ASCII with all of its texts visible, names of members as well."""
    return _JSON_ESCAPE.sub(lambda found: _shown_json(found[0]), text)


@lru_cache(maxsize=4096)
def _shown(character: str) -> str:
    unseen = category(character) in _UNSEEN or _IGNORABLE.match(character)
    return ascii(character)[1:-1] if unseen else character


@lru_cache(maxsize=4096)
def _shown_json(escape: str) -> str:
    """Return an escape of JSON, or with another backslash what the character is written out as."""
    character = json.loads(f'"{escape}"')
    shown = visible(character)
    return escape if shown == character else shown.replace("\\", "\\\\")
