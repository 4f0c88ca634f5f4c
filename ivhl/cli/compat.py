"""``ivhl compat``: which cases work in which cell."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import (
    matrix_beside_records,
    no_records,
    results_folder,
    warn_unread,
)
from ivhl.cli.names import narrow
from ivhl.cli.screen import check_suffix, screen, write_rows
from ivhl.errors import UnknownNameError
from ivhl.matrix.project import find_root
from ivhl.tracker.support.compat import (
    PASSING,
    compat_json,
    headline,
    python_key,
    release_key,
    support,
    support_sentence,
)
from ivhl.tracker.support.grid import by_place, grid_cell, matched_cases
from ivhl.tracker.support.table import ResultsTable
from ivhl.tracker.views.project import load_state, retired_cases, rows_of
from ivhl.tracker.wording import STATUS_WORDS, STATUSES, counted

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from ivhl.records.identity import CaseInCell
    from ivhl.tracker.support.compat import Row, Support
    from ivhl.tracker.support.grid import GridCell
    from ivhl.tracker.terminal import Terminal

# Of more cases, `ivhl compat` prints the cells, unless something is chosen.
_FEW_CASES = 12


@app.command("compat")
def compat_command(
    python: options.Pythons = None,
    torch: options.Releases = None,
    workload: options.Workloads = None,
    size: options.Sizes = None,
    variant: options.Variants = None,
    machine: options.Machines = None,
    device: options.AnyDevice = None,
    status: options.Status = None,
    results: options.Results = None,
    output: options.Output = None,
    *,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Show which cases work in which cell, from the newest record of each case.

    --output writes .csv or .json.
    """
    check_suffix(output, ".csv", ".json")
    by_word = {word: name for name, word in STATUS_WORDS.items()}
    status = [by_word.get(one, one) for one in status or ()]
    for one in status:
        if one not in STATUSES:
            raise UnknownNameError("status", one, STATUSES)
    root = find_root()
    state = load_state(root, results_folder(results, root), history=False)
    warn_unread(state.problems, results)
    matrix = matrix_beside_records(root, is_named=True)  # by the state
    found = rows_of(state)
    chosen = {
        "python": python,
        "workload": workload,
        "size": size,
        "variant": variant,
        "machine": machine,
        "device": device,
    }
    rows = narrow(found, matrix, torch=torch, status=status, **chosen)
    if not any(row.recorded for row in found) and not retired_cases(state):
        raise no_records(results_folder(results, root))
    if as_json:
        typer.echo(compat_json(rows), nl=False)
        return
    if output is not None:
        write_rows(output, [row.to_dict() for row in rows], json.loads(compat_json(rows)))
        return
    asked = (python, torch, workload, size, variant, machine, device, status)
    with screen(every=every, soft_wrap=False) as console:
        if not every and not any(asked) and len({row.series for row in rows}) > _FEW_CASES:
            _print_grid(console, found)
            return
        console.print(Text(headline(rows), "bold"))
        console.print(ResultsTable(rows))
        # Support is about all releases, whichever are shown.
        of_all = narrow(found, matrix, **chosen)
        shown = {(one.series, one.python) for one in support(rows)}
        for table in _support_tables(of_all, shown):
            console.print(table)
        if gone := retired_cases(state):
            text = f"measured earlier, no longer in the project: {', '.join(gone)}"
            console.print(Text(text, "bright_black"))


def _print_grid(console: Terminal, every: Iterable[Row]) -> None:
    """Print what works in each cell of the main machine, and how to see more."""
    rows_by_place = by_place(every)
    (machine, device), *others = rows_by_place
    rows = rows_by_place[machine, device]
    matched = matched_cases(rows)
    cells: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        cells[row.torch, row.python].append(row)
    pythons = sorted({row.python for row in rows}, key=python_key)
    table = Table("PyTorch", *(f"Python {python}" for python in pythons), box=box.SIMPLE_HEAD)
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


def _support_tables(
    rows: Iterable[Row], shown: Container[tuple[CaseInCell, str]]
) -> Iterator[Table]:
    """Yield a table per machine and device: support differs between them."""
    places: dict[tuple[str, str], list[Support]] = {}
    for found in support(rows):
        if (found.series, found.python) in shown:
            place = (found.series.machine, found.series.device)
            places.setdefault(place, []).append(found)
    for (machine, device), group in places.items():
        yield _support_table(
            f"releases with which a case passes on {machine or 'no machine yet'}, {device}", group
        )


def _support_table(title: str, group: Iterable[Support]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("workload", overflow="fold")
    table.add_column("Python", no_wrap=True)
    table.add_column("PyTorch releases", overflow="fold", min_width=16)
    workload = None
    for found in group:
        series = found.series
        if series.workload != workload:
            workload = series.workload
            table.add_row(Text(workload, "bold"))
        label = Text(f"  {series.size} {series.variant}")
        table.add_row(label, found.python, support_sentence(found))
    return table
