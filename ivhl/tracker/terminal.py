"""The console of every command: shows text from records and files as text, and never obeys it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment
from rich.table import Table

from ivhl.records.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable


class Terminal(Console):
    """A console on which no text moves the cursor, changes a colour or becomes a link.

    Colours come from styles. Markup is off unless a call asks for it: names and messages of records
    contain brackets, and may contain markup.

    Args:
        every: Whether everything is printed, and not what fits a screen.
        options: Those of ``rich.console.Console``.
    """

    def __init__(self, *, every: bool = True, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**{"markup": False, "emoji": False, "highlight": False} | options)
        self.every = every
        self.push_render_hook(_Visible())

    def label(self, word: str, text: object, style: str) -> None:
        """Print a word in a style, and a text behind it."""
        self.print(word, style=style, end=" ")
        self.print(text, soft_wrap=True)


class Columns(Table):
    """A table without lines that cuts no text: what is wider than its column is folded.

    Args:
        heads: The head of each column; all empty for a table without heads.
    """

    def __init__(self, *heads: str) -> None:
        super().__init__(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(heads))
        for head in heads:
            self.add_column(head, overflow="fold")


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
