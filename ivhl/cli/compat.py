"""``ivhl compat``: which cases work in which cell."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import matrix_beside_records, no_records, stored_state
from ivhl.cli.names import all_named, narrow, nothing_left
from ivhl.cli.screen import give, screen
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import COMPAT_SCHEMA, PASSING, headline, python_key, release_key
from ivhl.tracker.support.spans import by_place, grid_cell, matched_cases, spans_of, spans_sentence
from ivhl.tracker.support.table import ResultsTable
from ivhl.tracker.terminal import Columns, Terminal
from ivhl.tracker.views.project import retired_cases, rows_of
from ivhl.tracker.wording import STATUS_WORDS, STATUSES, counted

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from ivhl.records.identity import CaseInCell
    from ivhl.tracker.support.compat import Row
    from ivhl.tracker.support.spans import GridCell

# Of more cases, `ivhl compat` prints the cells, unless something is chosen.
_FEW_CASES = 12


@app.command("compat")
@options.choosing()
def compat_command(status: options.Status = None, *, asked: options.Asked) -> None:
    """Show which cases work in which cell, from the newest record of each case.

    --output writes .csv or .json.
    """
    by_word = {word: name for name, word in STATUS_WORDS.items()}
    words = all_named("status", status, {*by_word, *STATUSES})
    wanted = {by_word.get(word, word) for word in words} or {*STATUSES}
    root, folder, state = stored_state(asked.results)
    matrix = matrix_beside_records(root, is_named=True)  # by the state
    found = rows_of(state)
    rows = [row for row in narrow(found, matrix, **asked.chosen) if row.status in wanted]
    if not any(row.recorded for row in found) and not retired_cases(state):
        raise no_records(folder)
    if status and not rows:
        raise nothing_left()
    if asked.is_for_programs:
        listed = [row.to_dict() for row in rows]
        give(COMPAT_SCHEMA, asked.output, listed, rows=listed)
        return
    with screen(every=asked.every, soft_wrap=False) as console:
        is_narrow = asked.every or status or any(asked.chosen.values())
        if not is_narrow and len({row.series for row in rows}) > _FEW_CASES:
            _print_grid(console, found)
            return
        console.print(Text(headline(rows), "bold"))
        console.print(ResultsTable(rows))
        # Support is about all releases, whichever are shown.
        of_all = narrow(found, matrix, **(asked.chosen | {"torch": None}))
        _print_support(console, of_all, {(row.series, row.python) for row in rows})
        if gone := retired_cases(state):
            text = f"measured earlier, no longer in the project: {', '.join(gone)}"
            console.print(Text(text, "bright_black"))


def _print_grid(console: Terminal, every: Iterable[Row]) -> None:
    """Print what works in each cell of the main machine, and how to see more."""
    rows_by_place = by_place(every)
    (machine, device), *others = rows_by_place
    rows = rows_by_place[machine, device]
    matched = matched_cases(rows)
    cells = grouped_by(rows, lambda row: (row.torch, row.python))
    pythons = sorted({row.python for row in rows}, key=python_key)
    table = Columns("PyTorch", *(f"Python {python}" for python in pythons))
    for torch in sorted({row.torch for row in rows}, key=release_key):
        found = [grid_cell(cells[torch, python], "", matched) for python in pythons]
        table.add_row(torch, *map(_in_words, found))
    console.print(Text(f"{machine or 'no machine yet'}, {device}: {headline(rows)}", "bold"))
    console.print(table)
    console.print(
        f"x: mean speedup over eager, over {counted(len(matched), 'case')}; fail: or unsupported\n"
        "cases: --python 3.13, --torch 2.15.0, --workload NAME, --status wrong; --all, --json"
    )
    if others:
        console.print(f"other machines (--machine): {', '.join(name for name, _ in others)}")


def _in_words(cell: GridCell | None) -> str:
    if cell is None:
        return "-"
    failing = sum(share.count for share in cell.shares if share.status not in PASSING)
    if not cell.worth:
        return cell.word.removeprefix("all ")
    return f"{cell.worth}, {failing} fail" if failing else cell.worth


def _print_support(
    console: Terminal, rows: Iterable[Row], shown: Container[tuple[CaseInCell, str]]
) -> None:
    """Print a table per machine and device: support differs between them."""
    cases = grouped_by(rows, lambda row: (row.series, row.python))
    there = sorted(filter(shown.__contains__, cases), key=lambda one: (one[0], python_key(one[1])))
    for (machine, device), group in groupby(there, lambda one: (one[0].machine, one[0].device)):
        title = f"releases with which a case passes on {machine or 'no machine yet'}, {device}"
        console.print(Text(title, "bold"))
        table = Columns("workload", "Python", "PyTorch releases")
        for workload, of_workload in groupby(group, lambda one: one[0].workload):
            table.add_row(Text(workload, "bold"))
            for series, python in of_workload:
                here = cases[series, python]
                support = spans_sentence(spans_of(here, [row.torch for row in here]))
                table.add_row(Text(f"  {series.size} {series.variant}"), python, support)
        console.print(table)
