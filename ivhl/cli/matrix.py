"""``ivhl matrix``: list the cells, show one, or show how two differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ivhl.bench.selection import Selection
from ivhl.bench.work import (
    Shard as Share,
)
from ivhl.bench.work import (
    leave_out_measured,
    list_work,
    parse_shard,
    records_at,
    take_shard,
)
from ivhl.cli import app, options
from ivhl.cli.complete import complete_cells
from ivhl.cli.declared import declared, interpreter_of
from ivhl.cli.jobs import github_jobs
from ivhl.cli.lock import COLOURS, state_of
from ivhl.cli.names import find_cell
from ivhl.cli.releases import show_new_releases
from ivhl.cli.screen import print_json, screen
from ivhl.errors import InterpreterError, SpecError
from ivhl.git import commits_of_same_code, find_commit
from ivhl.matrix.diff import diff_cells
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load
from ivhl.tracker.store.records import load_records
from ivhl.tracker.wording import counted
from ivhl.workload import Case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.diff import CellDiff
    from ivhl.matrix.locks import LockState
    from ivhl.matrix.spec import CellSpec, Matrix
    from ivhl.tracker.terminal import Terminal

SCHEMA = "ivhl.matrix/1"
CELL_SCHEMA = "ivhl.cell/1"
DIFF_SCHEMA = "ivhl.cell-diff/1"


@app.command("matrix")
def matrix_command(
    cells: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CELL [CELL]]",
            help="A cell to show, e.g. py3.12-torch2.6.0, or two to compare.",
            autocompletion=complete_cells,
        ),
    ] = None,
    python: options.Pythons = None,
    torch: options.Releases = None,
    tier: options.Tier = "extended",
    workload: options.Workloads = None,
    size: options.OneSize = None,
    variant: options.Variants = None,
    suite: options.Suite = None,
    device: options.Device = "cpu",
    shard: options.Shard = None,
    commit: options.OneCommit = "HEAD",
    machine: options.OneMachine = None,
    form: options.Form = None,
    *,
    stale: options.Stale = False,
    new: options.New = False,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """List the cells; show one, or how two differ.

    --shard, --stale and --format github list the cases to measure: give them the options of `ivhl
    bench`. --torch also names releases that the matrix lacks. Of two cells, exit code 1 means that
    they cannot be compared.
    """
    root, matrix = load()
    if form not in (None, "github"):
        raise SpecError(f"--format: must be github (got {form})", hint="or --json")
    with screen(every=every or form is not None or as_json, soft_wrap=False) as console:
        if new:
            show_new_releases(console, root, matrix, torch or (), form=form, as_json=as_json)
            return
        if cells:
            if len(cells) > 2:  # noqa: PLR2004  (a pair)
                raise SpecError(
                    f"expected at most two cells (got {len(cells)})", hint="ivhl matrix lists them"
                )
            named = [find_cell(matrix, text, torch or ()) for text in cells]
            show = _show if len(named) == 1 else _diff
            show(console, root, matrix, named, as_json=as_json)
            return
        chosen = matrix.cells(python or (), torch or (), tier)
        work: dict[str, tuple[Case, ...]] | None = None
        selection = Selection(
            workloads=tuple(workload or ()), size=size, variants=tuple(variant or ()), suite=suite
        )
        if shard is not None or stale or form:
            cases = selection.choose(declared(root), device)
            work = _work(
                root,
                matrix.cells((*matrix.pythons_of(tier), *(python or ())), torch or (), tier),
                cases,
                shard=None if shard is None else parse_shard(shard),
                stale=stale,
                commit=find_commit(root, commit),
                device=device,
                machine=machine,
            )
            chosen = tuple(cell for cell in chosen if cell.id in work)
        if form:
            # An unavailable cell has nothing to install, so a job could not measure anything.
            there = [c for c in chosen if state_of(root, matrix, c)["lock"] != "unavailable"]
            # Always pass the suite: a job with --workload would otherwise measure all variants.
            options = [("--suite", selection.chosen_suite), ("--size", size)]
            options += [("--variant", name) for name in selection.variants]
            options += [("--device", device), ("--commit", commit)]
            every_case = () if selection.workloads else selection.choose(declared(root), device)
            typer.echo(github_jobs(there, work or {}, every_case, options))
            return
        rows = _rows(root, matrix, chosen, work)
        if as_json:
            print_json(SCHEMA, cells=rows)
        else:
            _print_cells(console, rows)


def _work(
    root: Path,
    cells: Sequence[CellSpec],
    cases: Sequence[Case],
    *,
    shard: Share | None,
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


def _print_cells(console: Terminal, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        console.print("no cells")
        return
    counts = [str(row["lock"]) for row in rows]
    summary = ", ".join(f"{counts.count(kind)} {kind}" for kind in dict.fromkeys(counts))
    console.print(f"{counted(len(rows), 'cell')}: {summary}")
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
    console.print(table)


def _show(
    console: Terminal, root: Path, matrix: Matrix, cells: Sequence[CellSpec], *, as_json: bool
) -> None:
    """Print the lock, the packages and the interpreter of a cell."""
    (cell,) = cells
    state = lock_state(root, cell)
    found = _facts(root, matrix, cell, state)
    if as_json:
        print_json(CELL_SCHEMA, **found, packages=state.packages)
        return
    missing = ""
    try:
        find_interpreter(root, cell.python, install=False)
    except InterpreterError as error:
        missing = str(error)
    python = f"{found['python_full']}, {found['interpreter']}"
    for name, value in {
        "cell": cell.id,
        "tier": found["tier"] or "not in the matrix",
        "lock": f"{found['lock']}, {found['path']}",
        "sha256": found["sha256"] or "-",
        "Python": missing or python,
    }.items():
        console.print(f"{name:<8}{value}", soft_wrap=True)
    if state.message:
        console.print(f"\n{state.message}", soft_wrap=True)
    if state.pins:
        table = Table("package", "version", "required by", box=None, pad_edge=False)
        for pin in state.pins:
            table.add_row(pin.name, pin.version, ", ".join(pin.via))
        console.print()
        console.print(table)


def _facts(root: Path, matrix: Matrix, cell: CellSpec, state: LockState) -> dict[str, Any]:
    interpreter = interpreter_of(root, cell.python)
    return {
        "id": cell.id,
        "python": cell.python,
        "torch": cell.torch,
        "tier": matrix.tier(cell),
        "lock": "stale" if state.stale(matrix) else state.kind,
        "path": state.path.relative_to(root).as_posix(),
        "sha256": state.sha256,
        "message": state.message,
        "interpreter": str(interpreter.path) if interpreter else None,
        "python_full": interpreter.full_version if interpreter else None,
    }


def _diff(
    console: Terminal, root: Path, matrix: Matrix, cells: Sequence[CellSpec], *, as_json: bool
) -> None:
    """Print how two cells differ, and whether they can be compared."""
    found = diff_cells(root, matrix, *cells)
    if as_json:
        print_json(
            DIFF_SCHEMA,
            first=found.first.id,
            second=found.second.id,
            axis=found.axis,
            matched=found.matched,
            reasons=found.reasons,
            added=dict(found.added),
            removed=dict(found.removed),
            changed=dict(found.changed),
            forced=dict(found.forced),
        )
    else:
        _print_diff(console, found)
    if not found.matched:
        raise typer.Exit(1)


def _print_diff(console: Terminal, found: CellDiff) -> None:
    differences = {
        **{name: (version, "-") for name, version in found.removed.items()},
        **{name: ("-", version) for name, version in found.added.items()},
        **found.changed,
    }
    axis = {"none": "the same cell", "both": "both axes differ"}.get(
        found.axis, f"differ in {found.axis}"
    )
    if found.matched:
        console.print("matched", style="green", end="")
        console.print(f": {axis}; every other difference is forced by that")
    for reason in found.reasons:
        console.print("not matched:", style="red", end=" ")
        console.print(reason, soft_wrap=True)
    if differences:
        table = Table(
            "package", found.first.id, found.second.id, "forced", box=None, pad_edge=False
        )
        for name, (old, new) in sorted(differences.items()):
            table.add_row(name, old, new, found.forced.get(name, Text("no", "red")))
        console.print()
        console.print(table)
