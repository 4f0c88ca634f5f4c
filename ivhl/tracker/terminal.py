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
        stderr: Whether to print to standard error.
        options: Those of ``rich.console.Console``.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:  # noqa: ANN401
        super().__init__(
            stderr=stderr, **{"markup": False, "emoji": False, "highlight": False} | options
        )
        self.push_render_hook(_Visible())


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
