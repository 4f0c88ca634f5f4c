"""``ivhl results``, ``ivhl compat`` and ``ivhl publish``: show the records, build the site."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from ivhl.cli import app
from ivhl.cli.declared import (
    bench_commands,
    check_recorded,
    matrix_beside_records,
    results_folder,
    warn,
    warn_unread,
)
from ivhl.errors import ResultsError, UnknownNameError
from ivhl.matrix.project import find_root
from ivhl.matrix.spec import newest_of
from ivhl.tracker.compat import (
    PASSING,
    compat_json,
    format_speedup,
    headline,
    python_key,
    release_key,
    status_of,
    support,
    support_sentence,
)
from ivhl.tracker.grid import by_place, grid_cell, matched_cases
from ivhl.tracker.index import open_index
from ivhl.tracker.project import load_state, retired_cases, rows_of
from ivhl.tracker.store import case_name, is_existing
from ivhl.tracker.table import STYLES, ResultsTable
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import ANOTHER_RUN, STATUS_WORDS, STATUSES, counted, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from ivhl.records.identity import CaseInCell
    from ivhl.records.record import RunRecord
    from ivhl.tracker.compat import Row, Support
    from ivhl.tracker.grid import GridCell
    from ivhl.tracker.spread import Spreads

T = TypeVar("T")

# Of more cases, `ivhl compat` prints the cells, unless something is chosen.
_FEW_CASES = 12

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PythonOption = Annotated[list[str] | None, typer.Option("--python", help="Only this Python.")]
TorchOption = Annotated[
    list[str] | None, typer.Option("--torch", help="Only this PyTorch release.")
]
WorkloadOption = Annotated[
    list[str] | None, typer.Option("--workload", help="Only this workload.")
]
SizeOption = Annotated[list[str] | None, typer.Option("--size", help="Only this size.")]
VariantOption = Annotated[list[str] | None, typer.Option("--variant", help="Only this variant.")]
MachineOption = Annotated[list[str] | None, typer.Option("--machine", help="Only this machine.")]
ResultsOption = Annotated[
    Path | None, typer.Option("--results", help="Folder of the results (default: results).")
]


@app.command()
def compat(
    python: PythonOption = None,
    torch: TorchOption = None,
    workload: WorkloadOption = None,
    size: SizeOption = None,
    variant: VariantOption = None,
    machine: MachineOption = None,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", help=f"Only this status: {', '.join(STATUSES)}; repeatable."),
    ] = None,
    results: ResultsOption = None,
    *,
    as_json: Json = False,
) -> None:
    """Show which cases work in which cell, from the newest record of each case."""
    root = find_root()
    state = load_state(root, results_folder(results, root), history=False)
    warn_unread(state.problems, results)
    rows = found = rows_of(state)
    matrix = matrix_beside_records(root, is_named=True)  # by the state
    by_python, by_release = bench_commands(matrix)
    rows = _only(
        "Python", python, rows, lambda row: row.python, among=found, measured_by=by_python
    )
    rows = _only("workload", workload, rows, lambda row: row.workload, among=found)
    rows = _only("size", size, rows, lambda row: row.size, among=found)
    rows = _only("variant", variant, rows, lambda row: row.variant, among=found)
    rows = _only("machine", machine, rows, lambda row: row.machine, among=found)
    every = rows  # of all releases, which support is about
    rows = _only(
        "PyTorch release",
        [newest_of(text, by_release) for text in torch or ()],
        rows,
        lambda row: row.torch,
        among=found,
        measured_by=by_release,
    )
    for one in status or ():
        if one not in STATUSES:
            raise UnknownNameError("status", one, STATUSES)
    rows = tuple(row for row in rows if not status or row.status in status)
    if as_json:
        typer.echo(compat_json(rows), nl=False)
        return
    console = Terminal()
    asked = (python, torch, workload, size, variant, machine, status)
    if not any(asked) and len({row.series for row in rows}) > _FEW_CASES:
        _print_grid(console, rows)
        return
    if found and not rows:
        console.print("no case matches all of these options")
        return
    console.print(Text(headline(rows), "bold"))
    console.print(ResultsTable(rows))
    for table in _support_tables(every, {(found.series, found.python) for found in support(rows)}):
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
        "cases: --python 3.13, --torch 2.15.0, --workload NAME, --status wrong; --json"
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


@app.command("results")
def list_results(
    python: PythonOption = None,
    torch: TorchOption = None,
    workload: WorkloadOption = None,
    machine: MachineOption = None,
    results: ResultsOption = None,
    *,
    as_json: Json = False,
) -> None:
    """List the records, oldest first. --json prints them as stored, with all samples."""
    root = find_root()
    index = open_index(results_folder(results, root))
    warn_unread(index.problems, results, every=True)
    every = entries = tuple(
        sorted(index.entries, key=lambda entry: (entry.recorded_at, entry.key))
    )
    by_python, by_release = bench_commands(matrix_beside_records(root))
    entries = _only(
        "Python",
        python,
        entries,
        lambda entry: entry.python,
        among=every,
        measured_by=by_python,
    )
    entries = _only(
        "PyTorch release",
        [newest_of(text, by_release) for text in torch or ()],
        entries,
        lambda entry: entry.torch,
        among=every,
        measured_by=by_release,
    )
    entries = _only("workload", workload, entries, lambda entry: entry.case.workload, among=every)
    entries = _only("machine", machine, entries, lambda entry: entry.case.machine, among=every)
    records = index.read(entries)
    if as_json:
        typer.echo(json.dumps([asdict(record) for record in records], indent=1))
        return
    console = Terminal()
    for part in _by_case(records, index.spreads):
        console.print(part)
    if records:
        console.print(f"in brackets: {ANOTHER_RUN}", style="bright_black")
    if not records:
        console.print("no record matches all of these options" if every else "no records")


@app.command("publish")
def publish(
    output: Annotated[
        Path | None, typer.Option(help="Folder of the site (default: site).")
    ] = None,
    asv: Annotated[
        bool | None,
        typer.Option(
            "--asv/--no-asv",
            help="Make asv's pages again, or not. By default only a new site gets them.",
        ),
    ] = None,
) -> None:
    """Build the static site.

    Replaces the old site only after the new one is complete. Results that cannot be read are
    left out with a warning; the exit code is still 0. A page that cannot be made is left out, too,
    and named; the site has all others, and the exit code is 5.
    """
    from ivhl.asv.publish import publish as publish_site  # noqa: PLC0415  (it imports asv)

    root = find_root()
    published = publish_site(root, output or root / "site", asv=asv)
    warn_unread(dict.fromkeys(published.problems), None)
    if published.off_branch:
        commits = ", ".join(published.off_branch)
        warn([f"asv's graphs omit commits that are on no published branch: {commits}"])
    typer.echo(published.output / "index.html")
    if not published.renewed:
        made = f"asv's pages: of {published.asv}" if published.asv else "asv's pages: none"
        typer.echo(f"{made}; ivhl publish --asv makes them again")
    if published.left_out:
        raise ResultsError(
            f"{counted(len(published.left_out), 'file')} of the site could not be made; the site "
            "has all others",
            hint="the warnings name each with its reason: please report it with the records that "
            "it shows",
        )


def _only(
    kind: str,
    wanted: Sequence[str] | None,
    items: tuple[T, ...],
    name: Callable[[T], str],
    *,
    among: Iterable[T],
    measured_by: Mapping[str, str] = MappingProxyType({}),
) -> tuple[T, ...]:
    """Return the items with the wanted names.

    Args:
        kind: What a name stands for, for the error, e.g. ``workload``.
        wanted: Names; empty or ``None`` means all items.
        items: Items to choose from.
        name: Returns the name of an item.
        among: Items whose names are known, those that other options have left out as well.
        measured_by: Name in the matrix to the command that would measure it.

    Raises:
        ResultsError: If a name is in the matrix but no item has it.
        UnknownNameError: If a name is in neither; lists the nearest.
    """
    known = {name(item) for item in among} - {""}  # of what was not measured, no machine
    check_recorded(kind, wanted or (), known, measured_by)
    return tuple(item for item in items if not wanted or name(item) in wanted)


def _support_tables(
    rows: Iterable[Row], shown: Container[tuple[CaseInCell, str]]
) -> Iterator[Table]:
    """Yield a table per machine and device: support differs between them."""
    places: dict[tuple[str, str], list[Support]] = {}
    for found in support(rows):
        if (found.series, found.python) not in shown:
            continue
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
    table.add_column("PyTorch releases", overflow="fold")
    workload = None
    for found in group:
        series = found.series
        if series.workload != workload:
            workload = series.workload
            table.add_row(Text(workload, "bold"))
        label = Text(f"  {series.size} {series.variant}")
        table.add_row(label, found.python, support_sentence(found))
    return table


def _by_case(records: Iterable[RunRecord], spreads: Spreads) -> Iterator[RenderableType]:
    """Yield a heading per case and its records; case names are too long for a table column."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(case_name(record), []).append(record)
    for case, group in sorted(groups.items()):
        yield Text(case, "bold")
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for record in group:
            status = status_of(record, spreads)
            another = spreads.another_run(record)
            result = format_speedup(another) if another else ""
            if record.failure is not None and record.failure.failure_class != status:
                result = record.failure.failure_class
            if record.conditions.quick:
                result += " quick"
            if is_existing(record):
                result += " existing environment"
            if record.conditions.image is not None:
                result += " in a container"
            result = marked(result, record)
            table.add_row(
                record.recorded_at[:10],
                record.commit[:8],
                record.cell.id,
                Text(f"{STATUS_WORDS[status]} {result}", STYLES[status]),
            )
        yield table
