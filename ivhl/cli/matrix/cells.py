"""``ivhl matrix list`` and ``show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from ivhl.bench.selection import Selection
from ivhl.bench.work import (
    Shard,
    leave_out_measured,
    list_work,
    parse_shard,
    records_at,
    take_shard,
)
from ivhl.cli.declared import declared
from ivhl.cli.matrix.app import (
    COLOURS,
    AdHocOption,
    Json,
    PythonOption,
    TorchOption,
    interpreter_of,
    matrix_app,
    new_console,
    print_json,
    state_of,
)
from ivhl.cli.matrix.jobs import github_jobs
from ivhl.errors import InterpreterError
from ivhl.git import commits_of_same_code, find_commit
from ivhl.matrix.interpreter import Interpreter, find_interpreter
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load
from ivhl.tracker.store import load_records
from ivhl.tracker.wording import counted
from ivhl.workload import Case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec, Matrix


@matrix_app.command("list")
def list_cells(
    python: PythonOption = None,
    torch: TorchOption = None,
    tier: Annotated[
        Literal["default", "extended", "next"],
        typer.Option(help="Releases to list; extended includes default, and next is apart."),
    ] = "extended",
    workload: Annotated[
        list[str] | None, typer.Option("--workload", help="Only this workload; repeatable.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Size (default: each workload's default size).")
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option("--variant", help="Only this variant; repeatable.")
    ] = None,
    suite: Annotated[
        Literal["core", "full"] | None,
        typer.Option(
            help="As for `ivhl bench` (default: core when no workload, size or variant is named)."
        ),
    ] = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to measure on.")] = "cpu",
    shard: Annotated[str | None, typer.Option(help="I/N: only the I-th of N shares.")] = None,
    commit: Annotated[str, typer.Option(help="Commit to measure.")] = "HEAD",
    machine: Annotated[
        str | None,
        typer.Option(help="With --stale: the machine whose records count (default: any)."),
    ] = None,
    form: Annotated[
        Literal["text", "json", "github"],
        typer.Option("--format", help="github: a job matrix for GitHub Actions."),
    ] = "text",
    *,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only cells with a case that lacks a final record.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List cells with their tier, lock and interpreter, or the cases to measure in them.

    --shard, --stale and --format github list cases: give them the options of `ivhl bench`.
    """
    root, matrix = load()
    cells = matrix.cells((*matrix.pythons_of(tier), *(python or ())), torch or (), tier)
    known = matrix.cells(python or (), torch or (), tier)
    every: tuple[Case, ...] = ()
    work: dict[str, tuple[Case, ...]] | None = None
    selection = Selection(
        workloads=tuple(workload or ()), size=size, variants=tuple(variant or ()), suite=suite
    )
    if shard is not None or stale or form == "github":
        every = selection.choose(declared(root), device)
        work = _work(
            root,
            cells,
            every,
            shard=None if shard is None else parse_shard(shard),
            stale=stale,
            commit=find_commit(root, commit),
            device=device,
            machine=machine,
        )
        known = tuple(cell for cell in known if cell.id in work)
    if form == "github":
        # An unavailable cell has nothing to install, so a job could not measure anything.
        there = [cell for cell in known if state_of(root, matrix, cell)["lock"] != "unavailable"]
        # Always pass the suite: a job with --workload would otherwise measure all variants.
        options = [("--suite", selection.chosen_suite), ("--size", size)]
        options += [("--variant", name) for name in selection.variants]
        options += [("--device", device), ("--commit", commit)]
        typer.echo(github_jobs(there, work or {}, () if selection.workloads else every, options))
        return
    rows = _rows(root, matrix, known, work)
    if as_json or form == "json":
        print_json(rows)
    else:
        _print_cells(rows)


def _work(
    root: Path,
    cells: Sequence[CellSpec],
    cases: Sequence[Case],
    *,
    shard: Shard | None,
    stale: bool,
    commit: str,
    device: str,
    machine: str | None,
) -> dict[str, tuple[Case, ...]]:
    """Return the cases to measure, per cell id."""
    work = list_work(cells, cases, records_at(root, commit), device=device)
    if shard is not None:
        work = take_shard(work, shard)
    if stale:
        records = load_records(root / "results").records
        work = leave_out_measured(
            work,
            records,
            locks={cell.id: lock_state(root, cell).sha256 for cell in cells},
            commits=commits_of_same_code(root, commit, {record.commit for record in records}),
            device=device,
            machine=machine,
        )
    found: dict[str, tuple[Case, ...]] = {}
    for one in work:
        found[one.cell.id] = found.get(one.cell.id, ()) + one.cases
    return found


def _rows(
    root: Path,
    matrix: Matrix,
    cells: Sequence[CellSpec],
    work: Mapping[str, Sequence[Case]] | None,
) -> list[dict[str, Any]]:
    found = {name: interpreter_of(root, name) for name in {cell.python for cell in cells}}
    rows = []
    for cell in cells:
        interpreter = found[cell.python]
        state = state_of(root, matrix, cell)
        row: dict[str, Any] = {
            "id": cell.id,
            "python": cell.python,
            "torch": cell.torch,
            "tier": matrix.tier(cell),
            "lock": state["lock"],
            "message": state["message"],
            "interpreter": str(interpreter.path) if interpreter else None,
            "python_full": interpreter.full_version if interpreter else None,
        }
        if work is not None:
            row["cases"] = [case.name for case in work[cell.id]]
        rows.append(row)
    return rows


def _print_cells(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table("cell", "tier", "lock", "Python", box=None, pad_edge=False)
    with_work = any("cases" in row for row in rows)
    if with_work:
        table.add_column("cases", overflow="fold")
    for row in rows:
        colour = COLOURS.get(str(row["lock"]), "red")
        columns = [
            row["id"],
            row["tier"] or "not in the matrix",
            Text(str(row["lock"]), colour),
            row["python_full"] or Text(f"not found: {row['python']}", "red"),
        ]
        if with_work:
            names = dict.fromkeys(name.partition("/")[0] for name in row["cases"])
            columns.append(f"{len(row['cases'])}: {', '.join(names)}")
        table.add_row(*columns)
    console = new_console()
    console.print(table)
    counts = [str(row["lock"]) for row in rows]
    summary = ", ".join(f"{counts.count(kind)} {kind}" for kind in dict.fromkeys(counts))
    console.print(f"\n{counted(len(rows), 'cell')}: {summary}" if rows else "no cells")


@matrix_app.command()
def show(
    cell: Annotated[str, typer.Argument(help="A cell, e.g. py3.12-torch2.6.0.")],
    torch: AdHocOption = None,
    *,
    as_json: Json = False,
) -> None:
    """Show one cell: its lock, its packages and its interpreter."""
    root, matrix = load()
    spec = matrix.cell(cell, torch or ())
    state = lock_state(root, spec)
    stale = state.stale(matrix)
    try:
        interpreter: Interpreter | None = find_interpreter(root, spec.python, install=False)
        missing = ""
    except InterpreterError as error:
        interpreter, missing = None, str(error)
    if as_json:
        print_json(
            {
                "id": spec.id,
                "python": spec.python,
                "torch": spec.torch,
                "tier": matrix.tier(spec),
                "lock": "stale" if stale else state.kind,
                "path": state.path.relative_to(root).as_posix(),
                "sha256": state.sha256,
                "message": state.message,
                "packages": state.packages,
                "interpreter": str(interpreter.path) if interpreter else None,
                "python_full": interpreter.full_version if interpreter else None,
            }
        )
        return
    console = new_console()
    facts = {
        "cell": spec.id,
        "tier": matrix.tier(spec) or "not in the matrix",
        "lock": f"{'stale' if stale else state.kind}, {state.path.relative_to(root).as_posix()}",
        "sha256": state.sha256 or "-",
        "Python": f"{interpreter.full_version}, {interpreter.path}" if interpreter else missing,
    }
    for name, value in facts.items():
        console.print(f"{name:<8}{value}", markup=False)
    if state.message:
        console.print(f"\n{state.message}", markup=False)
    if state.pins:
        table = Table("package", "version", "required by", box=None, pad_edge=False)
        for pin in state.pins:
            table.add_row(pin.name, pin.version, ", ".join(pin.via))
        console.print()
        console.print(table)
