"""Make text from records safe to show: all of it can be seen, and it turns nothing around it."""

from __future__ import annotations

import re
from typing import Any, Final

# Control characters but tab and line breaks, and marks that turn or hide the text around them.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return a text with its invisible characters written out, e.g. ``\u202e``."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible_data(data: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return data for JSON with all of its texts visible."""
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, dict):
        return {visible_data(key): visible_data(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [visible_data(value) for value in data]
    return data
