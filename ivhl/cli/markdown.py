"""Text from elsewhere in Markdown, where it must never be markup."""

from __future__ import annotations

import html

from ivhl.fleet.sources import shown

_LONGEST_SHOWN = 250


def code(text: str) -> str:
    """Return the text as code in a cell of a table, whatever it holds; cut when it is long."""
    plain = html.escape(shown(text[:_LONGEST_SHOWN]), quote=False)
    # All at once: what replaces one holds another.
    return f"<code>{plain.translate({ord(sign): f'&#{ord(sign)};' for sign in '|`@#'})}</code>"
