"""Escape untrusted text for Markdown tables."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from ivhl.records.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_SHOWN = 250
# Of the references that ``html.escape`` wrote, nothing: they contain "&" and ";" only.
_MARKDOWN = re.compile(r"[\\`*_{}\[\]()#!|~@$:^=]|(?<=\bwww)\.", re.IGNORECASE)


def code(text: str) -> str:
    """Return the text escaped, as code for a table cell, cut after 250 characters.

    Inside of ``<code>``, Markdown still makes links, images and emphasis, and GitHub makes links of
    addresses (``https:``, ``www.``), mentions and issues. None begins with a character reference.
    """
    plain = html.escape(printable(text[:_LONGEST_SHOWN]), quote=False)
    # In one pass: the replacements themselves contain "&", "#" and ";".
    return f"<code>{_MARKDOWN.sub(lambda sign: f'&#{ord(sign[0])};', plain)}</code>"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], most: int | None = None
) -> list[str]:
    """Return the lines of a table of cells that are Markdown; of more rows, how many there are."""
    lines = [heads, ["---"] * len(heads), *rows[:most]]
    found = [f"| {' | '.join(cells)} |" for cells in lines]
    if most is not None and len(rows) > most:
        found += ["", f"And {len(rows) - most} more."]
    return found
