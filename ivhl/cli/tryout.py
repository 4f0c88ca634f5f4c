"""``ivhl try``: one case of the uncommitted tree, with full tracebacks and without a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ivhl.bench.checks import check_device
from ivhl.bench.trial import Trial, try_case
from ivhl.cli import app
from ivhl.cli.declared import as_given, declared
from ivhl.cli.target import try_target
from ivhl.errors import InterpreterError, LockError
from ivhl.git import changed_files, find_commit
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import ensure_lock, lock_state
from ivhl.matrix.project import load
from ivhl.measure.effort import DEADLINE_S, MOST_THREADS, Effort
from ivhl.tracker.compat import is_free_threaded
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted
from ivhl.workload import core_cases, select_cases

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec, Matrix
    from ivhl.workload import Case


@app.command("try")
def try_command(
    *,
    workload: Annotated[
        list[str] | None,
        typer.Argument(
            help="Workloads (default: all, in their core variant); or targets outside of a project, "
            "e.g. torch.nn.functional:softmax."
        ),
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="Python of the cell (default: the newest that is here).")
    ] = None,
    torch: Annotated[
        str | None, typer.Option(help="PyTorch release (default: the newest of the default tier).")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Size (default: the default size).")] = None,
    variant: Annotated[
        str | None, typer.Option(help="Variant (default: the core variant).")
    ] = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to run on.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="CPU threads.")] = 1,
    deadline: Annotated[
        float, typer.Option(min=1, help="Time limit in seconds for each case.")
    ] = DEADLINE_S,
    logs: Annotated[
        str, typer.Option(help="TORCH_LOGS of the process, e.g. graph_breaks,recompiles.")
    ] = "",
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help='Of a target: 8,64 or "long 2,32 <1000". Default: guessed.'),
    ] = None,
    step: Annotated[bool, typer.Option("--step", help="Of a target: gradients, too.")] = False,
    requirement: Annotated[
        list[str] | None, typer.Option("--with", help="Of a target: a package that it needs.")
    ] = None,
    network: Annotated[
        bool, typer.Option("--network", help="Of a target: let it use the network.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Of a target: print JSON.")] = False,
) -> None:
    """Run cases of the uncommitted tree in one cell: full traceback, no record.

    Exit code 7 if a case has no speedup.
    """
    effort = Effort(device=device, threads=threads, deadline_s=deadline)
    if (targets := [name for name in workload or () if ":" in name]) and targets == workload:
        for text in targets:
            try_target(
                text, effort, inputs=inputs or (), step=step, requirements=requirement or (),
                pythons=(python,) if python else (), releases=(torch,) if torch else (),
                network=network, logs=bool(logs), as_json=as_json,
            )  # fmt: skip
        return
    root, matrix = load()
    check_device(device)
    cases = _cases(root, workload or (), size, variant, device)
    cell = newest_cell(root, matrix, python, torch)
    console = Terminal(highlight=False, soft_wrap=True)
    changed = changed_files(root)
    tree = f"commit {find_commit(root, 'HEAD')[:8]}" + (
        f" with {counted(len(changed), 'changed file')}" if changed else ""
    )
    codes = []
    for case in cases:
        console.print(f"{case.name} in {cell.id}, {tree}", markup=False, style="bold")
        trial = Trial(
            root=root,
            cell=cell,
            case=case,
            effort=effort,
            logs=logs,
        )
        codes.append(try_case(trial, console))
    console.print("no record was written; ivhl bench measures commits")
    if any(codes):
        raise typer.Exit(7)


def _cases(
    root: Path, names: Sequence[str], size: str | None, variant: str | None, device: str
) -> tuple[Case, ...]:
    """Return the cases that are named; without a variant, those of the core variants.

    Raises:
        UnknownNameError: If a name is in no workload.
    """
    workloads = declared(root)
    wanted = () if variant is None else (variant,)
    cases = select_cases(workloads, names=names, size=size, variants=wanted, device=device)
    if variant is not None:
        return cases
    core = {(case.workload.name, case.variant.name) for case in core_cases(workloads, device)}
    # A workload without a core variant is represented by another one; named, all of it is meant.
    return tuple(c for c in cases if (c.workload.name, c.variant.name) in core) or cases


def _is_here(root: Path, python: str) -> bool:
    try:
        find_interpreter(root, python, install=False)
    except InterpreterError:
        return False
    return True


def newest_cell(root: Path, matrix: Matrix, python: str | None, torch: str | None) -> CellSpec:
    """Return the cell that is named, or the newest one that can be made.

    Of a Python that this machine has, if there is one: uv would have to download any other.

    Raises:
        UnknownNameError: If the matrix lacks the Python.
        SpecError: If the release does not exist.
        LockError: If the cell cannot be made.
    """
    releases = (torch,) if torch else ()
    cells = matrix.cells((python,) if python else (), releases)
    locked = [cell for cell in cells if lock_state(root, cell).kind == "locked"]
    newest_first = (locked or cells)[::-1]
    # After all others those of a free-threaded Python.
    ordered = sorted(newest_first, key=lambda one: is_free_threaded(one.python))
    pythons = dict.fromkeys(one.python for one in ordered)
    here = next((name for name in pythons if _is_here(root, name)), ordered[0].python)
    cell = next(one for one in ordered if one.python == here)
    with as_given({cell.torch: torch or cell.torch}):
        lock = ensure_lock(root, matrix, cell)
    if lock.kind != "locked":
        raise LockError(
            f"{cell.id} cannot be made: {lock.message.splitlines()[0]}",
            hint="name another cell with --python and --torch; ivhl matrix list shows them",
        )
    return cell
