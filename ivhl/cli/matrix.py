"""``ivhl matrix``: list the cells, show one, how two differ, or releases that the matrix lacks."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ivhl.bench.work import cases_to_measure, github_jobs, parse_shard
from ivhl.cli import app, options
from ivhl.cli.declared import declared, interpreter_of
from ivhl.cli.lock import COLOURS
from ivhl.cli.names import RELEASE, all_named, find_cell, selection_of
from ivhl.cli.screen import check_github, picked, print_json, screen
from ivhl.errors import InterpreterError, ResultsError, SpecError, UnknownNameError
from ivhl.git import find_commit
from ivhl.matrix.check import state_of
from ivhl.matrix.diff import CellDiff, diff_cells
from ivhl.matrix.interpreter import Interpreter, find_interpreter
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load
from ivhl.matrix.releases import find_new_releases, support_of
from ivhl.tracker.terminal import Columns, Terminal
from ivhl.tracker.wording import counted, some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec, Matrix
    from ivhl.workload import Case


_NAMED = 3  # workloads of a cell; --json has all cases


@app.command("matrix")
def matrix_command(
    cells: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CELL [CELL]]",
            help="A cell to show, e.g. py3.12-torch2.6.0, or two to compare.",
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
    check_github(form, "a job matrix")
    root, matrix = load()
    with screen(every=every or form is not None or as_json, soft_wrap=False) as console:
        if new:
            show_new_releases(console, root, matrix, torch or (), as_json=as_json)
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
        pythons = all_named("Python", python, matrix.pythons)
        chosen = matrix.cells(pythons, torch or (), tier)
        found = {name: interpreter_of(root, name) for name in {cell.python for cell in chosen}}
        rows = [_facts(root, matrix, cell, found[cell.python]) for cell in chosen]
        with_work = shard is not None or stale or form
        if not with_work:
            _check_found(matrix, torch or (), rows)
        workloads = declared(root) if with_work or workload or variant or size else ()
        selection = selection_of(workloads, workload, size, variant, suite)
        work: dict[str, tuple[Case, ...]] = {}
        if with_work:
            work = cases_to_measure(
                root,
                matrix.cells((*matrix.pythons_of(tier), *pythons), torch or (), tier),
                selection.choose(workloads, device),
                shard=None if shard is None else parse_shard(shard),
                stale=stale,
                commit=find_commit(root, commit),
                device=device,
                machine=machine,
            )
            rows = [
                row | {"cases": [case.name for case in work[row["id"]]]}
                for row in rows
                if row["id"] in work
            ]
        if form:
            # An unavailable cell has nothing to install, so a job could not measure anything.
            there = {row["id"] for row in rows if row["lock"] != "unavailable"}
            # Always pass the suite: a job with --workload would otherwise measure all variants.
            options = [("--suite", selection.chosen_suite), ("--size", selection.size)]
            options += [("--variant", name) for name in selection.variants]
            options += [("--device", device), ("--commit", commit)]
            every_case = () if selection.workloads else selection.choose(workloads, device)
            measured = [cell for cell in chosen if cell.id in there]
            typer.echo(github_jobs(measured, work, every_case, options))
        elif as_json:
            print_json("ivhl.matrix/1", cells=rows)
        else:
            _print_cells(console, rows)


def _check_found(matrix: Matrix, texts: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse options that find nothing: no cell, or none that has a tier or a lock.

    Raises:
        ResultsError: If there is no cell.
        UnknownNameError: If there are only releases that nobody named before; lists the nearest.
    """
    if not rows:
        raise ResultsError("no cell matches all of these options", hint="leave out an option")
    if texts and not any(row["tier"] or row["lock"] != "missing" for row in rows):
        raise UnknownNameError(RELEASE, texts[0], matrix.every_release)


def _facts(
    root: Path, matrix: Matrix, cell: CellSpec, interpreter: Interpreter | None
) -> dict[str, Any]:
    """Return what is known of a cell without what is installed in it, for JSON."""
    return {
        "id": cell.id,
        **picked(cell, "python torch"),
        "tier": matrix.tier(cell),
        **state_of(root, matrix, cell),
        "interpreter": str(interpreter.path) if interpreter else None,
        "python_full": interpreter.full_version if interpreter else None,
    }


def _print_cells(console: Terminal, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        console.print("no cells")
        return
    counts = Counter(str(row["lock"]) for row in rows)
    summary = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    console.print(f"{counted(len(rows), 'cell')}: {summary}")
    with_work = "cases" in rows[0]
    table = Columns("cell", "tier", "lock", "Python", *["cases"] * with_work)
    for row in rows:
        names = [*dict.fromkeys(name.partition("/")[0] for name in row.get("cases", ()))]
        table.add_row(
            row["id"],
            row["tier"] or "not in the matrix",
            Text(row["lock"], COLOURS.get(row["lock"], "red")),
            row["python_full"] or Text(f"not found: {row['python']}", "red"),
            *([f"{len(row['cases'])}: {some(names, _NAMED)}"] if with_work else []),
        )
    console.print(table)


def _show(
    console: Terminal, root: Path, matrix: Matrix, cells: Sequence[CellSpec], *, as_json: bool
) -> None:
    """Print the lock, the packages and the interpreter of a cell."""
    (cell,) = cells
    state = lock_state(root, cell)
    path = state.path.relative_to(root).as_posix()
    missing, interpreter = "", None
    try:
        interpreter = find_interpreter(root, cell.python, install=False)
    except InterpreterError as error:
        missing = str(error)
    found = _facts(root, matrix, cell, interpreter) | {"path": path, "sha256": state.sha256}
    if as_json:
        print_json("ivhl.cell/1", **found, packages=state.packages)
        return
    for name, value in {
        "cell": cell.id,
        "tier": found["tier"] or "not in the matrix",
        "lock": f"{found['lock']}, {path}",
        "sha256": state.sha256 or "-",
        "Python": missing or f"{found['python_full']}, {found['interpreter']}",
    }.items():
        console.print(f"{name:<8}{value}", soft_wrap=True)
    if state.message:
        console.print(f"\n{state.message}", soft_wrap=True)
    if state.pins:
        table = Columns("package", "version", "required by")
        for pin in state.pins:
            table.add_row(pin.name, pin.version, ", ".join(pin.via))
        console.print()
        console.print(table)


def _diff(
    console: Terminal, root: Path, matrix: Matrix, cells: Sequence[CellSpec], *, as_json: bool
) -> None:
    """Print how two cells differ, and whether they can be compared."""
    found = diff_cells(root, matrix, *cells)
    if as_json:
        packages = picked(found, "added removed changed forced")
        print_json(
            "ivhl.cell-diff/1",
            first=found.first.id,
            second=found.second.id,
            **picked(found, "axis matched reasons"),
            **{name: dict(values) for name, values in packages.items()},
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
        console.print(f": {axis}; this causes all other differences")
    for reason in found.reasons:
        console.label("not matched:", reason, "red")
    if differences:
        table = Columns("package", found.first.id, found.second.id, "forced")
        for name, (old, new) in sorted(differences.items()):
            table.add_row(name, old, new, found.forced.get(name, Text("no", "red")))
        console.print()
        console.print(table)


def show_new_releases(
    console: Terminal, root: Path, matrix: Matrix, torch: Sequence[str], *, as_json: bool
) -> None:
    """Print PyTorch releases that the matrix lacks, with the Pythons that can install them.

    Lists releases newer than the matrix's newest, and newer patches of its minor releases; or those
    that are named, new or not. Writes nothing.
    """
    today = dt.datetime.now(tz=dt.UTC).date()
    named = tuple(dict.fromkeys(matrix.release(text) for text in torch))
    support = {
        release: support_of(root, matrix, release, today)
        for release in named or find_new_releases(root, matrix)
    }
    if as_json:
        found = {
            release: {one.cell.python: {"lock": one.kind, "message": one.message} for one in row}
            for release, row in support.items()
        }
        print_json("ivhl.releases/1", releases=found)
        return
    for row in support.values():
        for one in row:
            reason = one.message or "all its requirements can be installed"
            text = f"{one.cell.id}: {reason.splitlines()[0]}"
            console.label(one.kind, text, COLOURS.get(one.kind, "red"))
    if not support:
        console.print(
            f"no release newer than the matrix: {', '.join(matrix.releases('extended'))}"
        )
