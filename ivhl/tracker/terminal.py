"""The console of every command: shows text from records and files as text, and never obeys it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderHook
from rich.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, ConsoleRenderable, RenderResult

# Control characters except tab and line break; what changes the direction of text; separators of
# lines; halves of characters, which no terminal's encoding has.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Terminal(Console):
    """A console on which no text moves the cursor, changes a colour or becomes a link.

    Colours come from styles. Markup is off unless a call asks for it: names and messages of records
    contain brackets, and may contain markup.

    Args:
        stderr: Whether to print to standard error.
        options: Those of ``rich.console.Console``.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:  # noqa: ANN401
        super().__init__(stderr=stderr, markup=False, emoji=False, **options)
        self.push_render_hook(_Visible())


def visible(text: str) -> str:
    """Return the text with each control character written out as Python would."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


class _Visible(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Shown(one) for one in renderables]


class _Shown:
    """A renderable whose text is visible; cursor movements of rich itself stay."""

    def __init__(self, what: ConsoleRenderable) -> None:
        self._what = what

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        segments: Iterable[Segment] = console.render(self._what, options)
        for text, style, control in segments:
            yield Segment(text if control else visible(text), style, control)
