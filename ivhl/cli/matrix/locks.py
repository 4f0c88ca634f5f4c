"""``ivhl matrix diff``, ``check`` and ``lock``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ivhl.cli.matrix.app import (
    COLOURS,
    AdHocOption,
    Json,
    TorchOption,
    matrix_app,
    new_console,
    print_json,
    state_of,
)
from ivhl.errors import InterpreterError, IvhlError, LockError, SpecError
from ivhl.matrix.check import check_locks
from ivhl.matrix.diff import diff_cells
from ivhl.matrix.locks import (
    NEXT_INDEX,
    SUMS,
    lock_release,
    without_interpreter,
    write_missing_sums,
)
from ivhl.matrix.project import load
from ivhl.matrix.uv import uv_pool
from ivhl.matrix.wheels import build_missing
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.diff import CellDiff
    from ivhl.matrix.locks import LockState
    from ivhl.matrix.spec import Matrix


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
        print_json(
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
    console = new_console()
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
    console = new_console()
    for problem in problems:
        console.print(problem, markup=False)
    if problems:
        console.print(counted(len(problems), "problem"), style="red", end="")
        console.print("; next: do what they say, or run ivhl matrix lock; then review the diff")
        raise typer.Exit(1)
    n_cells = len(matrix.cells(tier="extended"))
    console.print("in order", style="green", end="")
    console.print(f": {counted(n_cells, 'cell')}, locks fresh, hashed and matched")


@matrix_app.command()
def lock(
    torch: TorchOption = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Resolve every lock again, fresh ones included.")
    ] = False,
) -> None:
    """Resolve the locks that are missing or stale, each release for all Pythons together.

    Those of the tier `next` only if IVHL_NEXT_INDEX names the index that has them.

    A release named with --torch is always resolved again, and need not be in the matrix. The locks
    of a free-threaded Python stay as they are where this machine has no such interpreter.
    """
    root, matrix = load()
    releases = _releases_to_lock(root, matrix, torch, every=every)
    console = new_console()
    absent = without_interpreter(root, matrix) if releases else {}
    for path in build_missing(root, matrix):
        console.print(f"[green]built[/] {path.relative_to(root)}")
    failed: list[IvhlError] = []

    def lock_one(release: str) -> tuple[LockState, ...] | IvhlError:
        try:
            return lock_release(root, matrix, release, absent)
        except IvhlError as error:
            return error

    # If one release fails, the others are still locked.
    with uv_pool(4) as pool:
        for states in pool.map(lock_one, releases):
            if isinstance(states, IvhlError):
                failed.append(states)
                continue
            for state in states:
                colour = COLOURS[state.kind]
                detail = f"{len(state.pins)} packages" if state.pins else state.message
                console.print(state.kind, style=colour, end=" ")
                console.print(f"{state.cell.id}:", end=" ")
                console.print(detail.partition("\n")[0], markup=False)
    if write_missing_sums(root):
        console.print(f"wrote envs/locks/{SUMS}: a lock that is edited from now on is noticed")
    for left in _left(matrix, absent, named=bool(torch)):
        console.print(left)
    _raise_joined(failed)
    _require_fresh(root, matrix, releases, absent)
    if not releases:
        console.print("every lock exists and is fresh; --all resolves them again")


def _left(matrix: Matrix, absent: Iterable[str], *, named: bool) -> Iterator[str]:
    for python in absent:
        yield f"left {python}: no such interpreter here, so its locks stay as they are"
    if not named and not os.environ.get(NEXT_INDEX):
        for release in matrix.releases("next"):
            yield f"left {release}: of the tier next, and {NEXT_INDEX} is not set"


def _raise_joined(failed: Sequence[IvhlError]) -> None:
    if len(failed) == 1:
        raise failed[0]
    if failed:
        kind = SpecError if all(isinstance(error, SpecError) for error in failed) else LockError
        raise kind("\n".join(f"{error} ({error.hint})" for error in failed))


def _require_fresh(
    root: Path, matrix: Matrix, releases: Sequence[str], absent: Mapping[str, InterpreterError]
) -> None:
    """Refuse what was left without a fresh lock and what `ivhl matrix check` would report.

    Raises:
        InterpreterError: If there is such a cell.
    """
    for python, error in absent.items():
        cells = matrix.cells([python], releases)
        left = [
            cell.id
            for cell in cells
            if matrix.tier(cell) not in {None, "next"}
            and state_of(root, matrix, cell)["lock"] not in {"locked", "unavailable"}
        ]
        if left:
            raise InterpreterError(f"not locked: {', '.join(left)}: {error}", hint=error.hint)


def _releases_to_lock(
    root: Path, matrix: Matrix, torch: Sequence[str] | None, *, every: bool
) -> Sequence[str]:
    if torch:
        return tuple(dict.fromkeys(matrix.release(text) for text in torch))
    there = matrix.every_release if os.environ.get(NEXT_INDEX) else matrix.releases("extended")
    return [
        release
        for release in there
        if every
        or any(
            state_of(root, matrix, cell)["lock"] not in {"locked", "unavailable"}
            for cell in matrix.cells(releases=[release])
        )
    ]
