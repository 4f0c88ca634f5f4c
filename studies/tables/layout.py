"""Tables in Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    lines = [re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(line)} |") for line in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


def once(rows: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yield the rows without a first cell that is that of the row above."""
    last = ""
    for first, *others in rows:
        yield ["" if first == last else first, *others]
        last = first
