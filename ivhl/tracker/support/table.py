"""Render results as tables for the terminal, of which nothing is cut at 80 columns; and as CSV."""

from __future__ import annotations

import csv
import io
import json
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len, chop_cells
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ivhl.records.text import printable
from ivhl.tracker import wording
from ivhl.tracker.support.compat import Row, python_key, release_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from ivhl.tracker.wording import Status

STYLES: dict[Status, str] = {
    "works": "green",
    "noisy": "cyan",
    "slow": "yellow",
    "wrong": "bold red",
    "unsupported": "magenta",
    "unavailable": "bright_black",
    "failed": "red",
    "not_run": "bright_black",
}


# How a cell begins that a spreadsheet would compute.
_FORMULA: Final = ("=", "+", "-", "@")
_LEAST_LABEL: Final = 12  # columns of a label, on the narrowest terminals


class ResultsTable:
    """Tables with a column per cell and a row per case, as many cells side by side as fit."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the tables of each machine and device, then the numbered failure reasons."""
        if not self._rows:
            yield Text("no records", style="bright_black")
            return
        reasons: dict[str, int] = {}
        places = list(dict.fromkeys((row.machine, row.device) for row in self._rows))
        for machine, device in places:
            rows = [row for row in self._rows if (row.machine, row.device) == (machine, device)]
            yield Text(f"speedup over eager on {machine or 'no machine yet'}, {device}", "bold")
            yield _blocks(rows, reasons, options.max_width)
        if any(row.quick for row in self._rows):
            yield Text(f"quick runs: {wording.QUICK_MEANING}", style="bright_black")
        for reference in dict.fromkeys(row.reference for row in self._rows):
            if reference is not None and (mark := wording.REFERENCE_MARKS[reference]):
                yield Text(
                    f"{mark}: {wording.REFERENCE_MEANINGS[reference]}", style="bright_black"
                )
        if any(row.uncommitted for row in self._rows):
            yield Text(
                f"{wording.UNCOMMITTED_MARK}: {wording.UNCOMMITTED_MEANING}", style="bright_black"
            )
        if any(row.is_fixed for row in self._rows):
            yield Text(
                f"{wording.FIXED_MARK}: {wording.FIXED_MEANING}: ivhl check expectations",
                style="bold red",
            )
        unlocked = dict.fromkeys(
            f"{row.cell} on {row.machine}" for row in self._rows if row.existing
        )
        if unlocked:
            note = f"existing environments, without a lock: {', '.join(unlocked)}"
            yield Text(note, style="bright_black")
        if any(row.speedup is not None for row in self._rows):
            yield Text(f"in brackets: {wording.ANOTHER_RUN}", style="bright_black")
        yield _legend(reasons)


def _blocks(rows: Sequence[Row], reasons: dict[str, int], width: int) -> RenderableType:
    cells = {row.cell: row for row in rows}
    columns = sorted(
        cells, key=lambda c: (python_key(cells[c].python), release_key(cells[c].torch), c)
    )
    entries = {(row.series, row.cell): _entry(row, reasons) for row in rows}
    series = list(dict.fromkeys(row.series for row in rows))
    label_width = max(max(len(s.workload), len(f"  {s.size} {s.variant}")) for s in series)
    entry_width = max(*(len(c) for c in columns), *(cell_len(e.text) for e in entries.values()))
    # Longer texts are folded: nothing is beside the terminal.
    label_width = min(label_width, max(_LEAST_LABEL, width - entry_width - 4))
    entry_width = min(entry_width, width - label_width - 4)
    fitting = max(1, (width - label_width - 2) // (entry_width + 2))
    lines: list[list[Segment]] = []
    for start in range(0, len(columns), fitting):
        shown = columns[start : start + fitting]
        head = [Segment("workload"), *map(Segment, shown)]
        rule = Segment("─" * (label_width + len(shown) * (entry_width + 2)))
        lines += [*_folded(head, label_width, entry_width), [rule]]
        workload = None
        for one in series:
            if one.workload != workload:
                workload = one.workload
                bold = Style.parse("bold")
                lines += [[Segment(text, bold)] for text in chop_cells(workload, width)]
            found = (entries.get((one, cell), _NOTHING) for cell in shown)
            label = Segment(f"  {one.size} {one.variant}")
            lines += _folded([label, *found], label_width, entry_width)
        lines.append([])
    # Their widths are known: a table or a text would measure and wrap every line again.
    return Segments(segment for line in lines for segment in (*line, Segment.line()))


_NOTHING: Final = Segment("")


def _folded(
    parts: Sequence[Segment], label_width: int, entry_width: int
) -> Iterator[list[Segment]]:
    """Yield the lines of a row: those of its label, then, beside the last, those of its entries."""
    widths = (label_width, *[entry_width] * (len(parts) - 1))
    folded = [
        [part]
        if cell_len(part.text) <= width
        else [Segment(text, part.style) for text in chop_cells(part.text, width)]
        for width, part in zip(widths, parts, strict=True)
    ]
    *above, label = folded[0]
    yield from ([part] for part in above)
    for line in zip_longest([label], *folded[1:], fillvalue=_NOTHING):
        yield [
            piece
            for width, part in zip(widths, line, strict=True)
            for piece in (part, Segment(" " * (width - cell_len(part.text) + 2)))
        ]


def _entry(row: Row, reasons: dict[str, int]) -> Segment:
    style = Style.parse(STYLES[row.status])
    if row.status == "not_run":
        return Segment("not run", style)
    if row.speedup is not None:
        word = f" {wording.STATUS_WORDS[row.status]}" if row.status in ("slow", "noisy") else ""
        interval = f"[{row.speedup_low:.2f}, {row.speedup_high:.2f}]"
        return Segment(f"{row.speedup:.2f}x {interval}{word}{_mark(row)}", style)
    if row.failure_class is None:
        return Segment(f"{wording.NOT_TIMED}{_mark(row)}", style)
    reason = f"{row.failure_class}: {row.exception}{': ' if row.exception else ''}"
    reason += wording.short_message(row.message)
    if row.expectation is not None:
        reason += f"\nexpected: {row.expectation.why}"
    number = reasons.setdefault(reason, len(reasons) + 1)
    return Segment(f"{row.failure_class} ({number}){_mark(row)}", style)


def _mark(row: Row) -> str:
    found = row.marks
    if row.expectation is not None:
        found = (*found, wording.FIXED_MARK if row.is_fixed else wording.EXPECTED_MARK)
    return "".join(f" · {mark}" for mark in found)


def _legend(reasons: dict[str, int]) -> RenderableType:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for reason, number in reasons.items():
        table.add_row(f"({number})", Text(reason))
    return table


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table as CSV, with a column for each name."""
    names = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_plain(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def _plain(value: object) -> object:
    """Return a value as CSV holds it: a text of a record is never a formula of a spreadsheet."""
    if value is None or isinstance(value, bool | int | float):
        return "" if value is None else value
    text = printable(value if isinstance(value, str) else json.dumps(value))
    return f"'{text}" if text.startswith(_FORMULA) else text
