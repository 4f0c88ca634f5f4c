"""``ivhl matrix``: list, compare, check and lock the cells."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
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
from ivhl.cli import app
from ivhl.cli.declared import declared
from ivhl.cli.markdown import code
from ivhl.errors import InterpreterError, IvhlError, LockError, SpecError
from ivhl.git import commits_of_same_code, find_commit
from ivhl.matrix.check import check_locks
from ivhl.matrix.diff import diff_cells
from ivhl.matrix.interpreter import Interpreter, find_interpreter
from ivhl.matrix.locks import lock_release, lock_state
from ivhl.matrix.project import load
from ivhl.matrix.releases import find_new_releases, support_of
from ivhl.matrix.wheels import build_missing
from ivhl.records.store import load_records
from ivhl.tracker.terminal import Terminal
from ivhl.workload import Case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.diff import CellDiff
    from ivhl.matrix.locks import LockState
    from ivhl.matrix.releases import WheelSupport
    from ivhl.matrix.spec import CellSpec, Matrix

matrix_app = typer.Typer(
    name="matrix",
    help="Show, check and lock the cells: every Python with every PyTorch release.",
    no_args_is_help=True,
)
app.add_typer(matrix_app)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PythonOption = Annotated[list[str] | None, typer.Option("--python", help="Only this Python.")]
TorchOption = Annotated[
    list[str] | None, typer.Option("--torch", help="Only this PyTorch release, of any tier.")
]
AdHocOption = Annotated[
    list[str] | None,
    typer.Option("--torch", help="Also accept cells of this release, which the matrix lacks."),
]

# GitHub starts at most this many jobs from one matrix.
_GITHUB_JOBS = 256
_COLOURS = {"locked": "green", "unavailable": "yellow", "missing": "red", "stale": "red"}


@matrix_app.command("list")
def list_cells(
    python: PythonOption = None,
    torch: TorchOption = None,
    tier: Annotated[
        Literal["default", "extended"],
        typer.Option(help="Releases to list; extended includes default."),
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
    cells = matrix.cells((), torch or (), tier)
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
        there = [cell for cell in known if _state(root, matrix, cell)["lock"] != "unavailable"]
        # Always pass the suite: a job with --workload would otherwise measure all variants.
        options = [("--suite", selection.chosen_suite), ("--size", size)]
        options += [("--variant", name) for name in selection.variants]
        options += [("--device", device), ("--commit", commit)]
        typer.echo(_github(there, work or {}, () if selection.workloads else every, options))
        return
    rows = _rows(root, matrix, known, work)
    if as_json or form == "json":
        _print_json(rows)
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


def _github(
    cells: Sequence[CellSpec],
    work: Mapping[str, Sequence[Case]],
    every: Sequence[Case],
    options: Sequence[tuple[str, str | None]],
) -> str:
    """Return a GitHub Actions matrix: one line of JSON with a job per cell.

    Args:
        cells: Cells that get a job.
        work: Cases to measure, per cell id.
        every: Cases that a job measures without ``--workload``; empty to always name workloads.
        options: Options of every job; those with their default are left out.

    Raises:
        SpecError: If there are more jobs than GitHub starts.
    """
    if len(cells) > _GITHUB_JOBS:
        raise SpecError(
            f"--format github: a matrix may have at most {_GITHUB_JOBS} jobs (got {len(cells)})",
            hint="select fewer cells: --tier default, --torch, --python or --shard",
        )
    given = [
        word
        for name, value in options
        if value not in (None, "cpu", "HEAD")
        for word in (name, str(value))
    ]
    include = []
    for cell in cells:
        names = dict.fromkeys(case.workload.name for case in work[cell.id])
        words = ["--torch", cell.torch, *given]
        if len(work[cell.id]) != len(every):
            words += [word for name in names for word in ("--workload", name)]
        entry = {"cell": cell.id, "python": cell.python, "torch": cell.torch}
        include.append(entry | {"arguments": shlex.join(words)})
    return json.dumps({"include": include}, separators=(",", ":"))


def _rows(
    root: Path,
    matrix: Matrix,
    cells: Sequence[CellSpec],
    work: Mapping[str, Sequence[Case]] | None,
) -> list[dict[str, Any]]:
    found = {name: _interpreter(root, name) for name in {cell.python for cell in cells}}
    rows = []
    for cell in cells:
        interpreter = found[cell.python]
        state = _state(root, matrix, cell)
        row: dict[str, Any] = {
            "id": cell.id,
            "python": cell.python,
            "torch": cell.torch,
            "tier": matrix.tier(cell.torch),
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
        colour = _COLOURS.get(str(row["lock"]), "red")
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
    console = _console()
    console.print(table)
    counts = [str(row["lock"]) for row in rows]
    summary = ", ".join(f"{counts.count(kind)} {kind}" for kind in dict.fromkeys(counts))
    console.print(f"\n{len(rows)} cells: {summary}" if rows else "no cells")


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
        _print_json(
            {
                "id": spec.id,
                "python": spec.python,
                "torch": spec.torch,
                "tier": matrix.tier(spec.torch),
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
    console = _console()
    facts = {
        "cell": spec.id,
        "tier": matrix.tier(spec.torch) or "not in the matrix",
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


@matrix_app.command()
def diff(
    first: Annotated[str, typer.Argument(help="A cell.")],
    second: Annotated[str, typer.Argument(help="Another cell.")],
    torch: AdHocOption = None,
    *,
    as_json: Json = False,
) -> None:
    """Show how two cells differ and whether they can be compared. Exit code 1 if not."""
    root, matrix = load()
    cells = [matrix.cell(cell_id, torch or ()) for cell_id in (first, second)]
    found = diff_cells(root, matrix, *cells)
    if as_json:
        _print_json(
            {
                "first": found.first.id,
                "second": found.second.id,
                "axis": found.axis,
                "matched": found.matched,
                "reasons": found.reasons,
                "added": dict(found.added),
                "removed": dict(found.removed),
                "changed": dict(found.changed),
                "forced": dict(found.forced),
            }
        )
    else:
        _print_diff(found)
    if not found.matched:
        raise typer.Exit(1)


def _print_diff(found: CellDiff) -> None:
    console = _console()
    differences = {
        **{name: (version, "-") for name, version in found.removed.items()},
        **{name: ("-", version) for name, version in found.added.items()},
        **found.changed,
    }
    if differences:
        table = Table(
            "package", found.first.id, found.second.id, "forced", box=None, pad_edge=False
        )
        for name, (old, new) in sorted(differences.items()):
            table.add_row(name, old, new, found.forced.get(name, Text("no", "red")))
        console.print(table)
        console.print()
    axis = {"none": "the same cell", "both": "both axes differ"}.get(
        found.axis, f"differ in {found.axis}"
    )
    if found.matched:
        console.print("matched", style="green", end="")
        console.print(f": {axis}; every other difference is forced by that")
    for reason in found.reasons:
        console.print("not matched:", style="red", end=" ")
        console.print(reason, markup=False)


@matrix_app.command()
def check() -> None:
    """Check the matrix and every lock. Prints all problems; exit code 1 if there is one."""
    root, matrix = load()
    problems = check_locks(root, matrix)
    console = _console()
    for problem in problems:
        console.print(problem, markup=False)
    if problems:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        console.print(count, style="red", end="")
        console.print("; next: run ivhl matrix lock, then review the diff")
        raise typer.Exit(1)
    n_cells = len(matrix.cells(tier="extended"))
    console.print("in order", style="green", end="")
    console.print(f": {n_cells} cells, locks fresh, hashed and matched")


@matrix_app.command()
def lock(
    torch: TorchOption = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Resolve every lock again, fresh ones included.")
    ] = False,
) -> None:
    """Resolve the locks that are missing or stale, each release for all Pythons together.

    A release named with --torch is always resolved again, and need not be in the matrix.
    """
    root, matrix = load()
    releases = _releases_to_lock(root, matrix, torch, every=every)
    console = _console()
    for path in build_missing(root, matrix):
        console.print(f"[green]built[/] {path.relative_to(root)}")
    failed: list[IvhlError] = []

    def lock_one(release: str) -> tuple[LockState, ...] | IvhlError:
        try:
            return lock_release(root, matrix, release)
        except IvhlError as error:
            return error

    # If one release fails, the others are still locked.
    with ThreadPoolExecutor(4) as pool:
        for states in pool.map(lock_one, releases):
            if isinstance(states, IvhlError):
                failed.append(states)
                continue
            for state in states:
                colour = _COLOURS[state.kind]
                detail = f"{len(state.pins)} packages" if state.pins else state.message
                console.print(state.kind, style=colour, end=" ")
                console.print(f"{state.cell.id}:", end=" ")
                console.print(detail.partition("\n")[0], markup=False)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        kind = SpecError if all(isinstance(error, SpecError) for error in failed) else LockError
        raise kind("\n".join(f"{error} ({error.hint})" for error in failed))
    if not releases:
        console.print("every lock exists and is fresh; --all resolves them again")


def _releases_to_lock(
    root: Path, matrix: Matrix, torch: Sequence[str] | None, *, every: bool
) -> Sequence[str]:
    if torch:
        return tuple(dict.fromkeys(matrix.release(text) for text in torch))
    return [
        release
        for release in matrix.releases("extended")
        if every
        or any(
            _state(root, matrix, cell)["lock"] not in {"locked", "unavailable"}
            for cell in matrix.cells(releases=[release])
        )
    ]


@matrix_app.command("new")
def new_releases(
    torch: Annotated[
        list[str] | None,
        typer.Option("--torch", help="Check this release instead, new or not; repeatable."),
    ] = None,
    form: Annotated[
        Literal["text", "json", "github"],
        typer.Option("--format", help="github: Markdown for an issue."),
    ] = "text",
) -> None:
    """List PyTorch releases that the matrix lacks, with the Pythons that can install them.

    Lists releases newer than the matrix's newest, and newer patches of its minor releases.
    Writes nothing.
    """
    root, matrix = load()
    today = dt.datetime.now(tz=dt.UTC).date()
    named = tuple(dict.fromkeys(matrix.release(text) for text in torch or ()))
    support = {
        release: support_of(root, matrix, release, today)
        for release in named or find_new_releases(root, matrix)
    }
    if form == "json":
        _print_json(
            {
                release: {
                    one.cell.python: {"lock": one.kind, "message": one.message} for one in row
                }
                for release, row in support.items()
            }
        )
        return
    console = _console()
    for release, row in support.items():
        if form == "github":
            typer.echo(_release_markdown(release, row, today))
            continue
        for one in row:
            colour = _COLOURS.get(one.kind, "red")
            console.print(one.kind, style=colour, end=" ")
            console.print(f"{one.cell.id}:", end=" ")
            reason = one.message or "all its requirements can be installed"
            console.print(reason.partition("\n")[0], markup=False)
    if not support and form == "text":
        console.print(
            f"no release newer than the matrix: {', '.join(matrix.releases('extended'))}"
        )


def _release_markdown(release: str, row: Sequence[WheelSupport], today: dt.date) -> str:
    words = {"locked": "yes", "unavailable": "no", "undecided": "unknown"}
    table = [f"| {one.cell.python} | {words[one.kind]} | {_why(one)} |" for one in row]
    measure = (
        f"set `exclude-newer` of `envs/matrix.toml` to {today.isoformat()}, add a `[[torch]]` row, "
        f"run `nox -s lock`, commit, `nox -s bench-{row[-1].cell.python} -- --torch {release}`"
    )
    return "\n".join(
        [
            f"PyTorch {release}: what `ivhl matrix new` finds in the package registry.",
            "",
            "| Python | can be installed | why not |",
            "|---|---|---|",
            *table,
            "",
            f"To see whether it compiles, measure it: {measure}.",
        ]
    )


def _why(one: WheelSupport) -> str:
    return code(one.message.partition("\n")[0]) if one.message else ""


def _state(root: Path, matrix: Matrix, cell: CellSpec) -> dict[str, str]:
    try:
        state = lock_state(root, cell)
    except LockError as error:
        return {"lock": "damaged", "message": str(error)}
    return {"lock": "stale" if state.stale(matrix) else state.kind, "message": state.message}


def _interpreter(root: Path, python: str) -> Interpreter | None:
    try:
        return find_interpreter(root, python, install=False)
    except InterpreterError:
        return None


def _console() -> Terminal:
    # A new one at each use, because tests replace stdout. Lines for a pipe are not wrapped.
    wide = None if sys.stdout.isatty() else 1000
    return Terminal(highlight=False, soft_wrap=True, width=wide)


def _print_json(value: Any) -> None:  # noqa: ANN401  (whatever json takes)
    typer.echo(json.dumps(value, indent=2, allow_nan=False))
