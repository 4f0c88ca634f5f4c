"""Escape untrusted text for Markdown tables."""

from __future__ import annotations

import html

from ivhl.fleet.sources import printable

_LONGEST_SHOWN = 250


def code(text: str) -> str:
    """Return the text escaped, as code for a table cell, cut after 250 characters."""
    plain = html.escape(printable(text[:_LONGEST_SHOWN]), quote=False)
    # In one pass: the replacements themselves contain "#".
    return f"<code>{plain.translate({ord(sign): f'&#{ord(sign)};' for sign in '|`@#'})}</code>"
