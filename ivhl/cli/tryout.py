"""``ivhl try``: one case of the uncommitted tree, with full tracebacks and without a record."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ivhl.bench.checks import check_device
from ivhl.bench.trial import try_case
from ivhl.cli import app, options
from ivhl.cli.declared import declared, interpreter_of, locked
from ivhl.cli.names import selection_of, the_one
from ivhl.cli.screen import LINES
from ivhl.cli.target import check_no_case, try_target
from ivhl.errors import NoSpeedupError, SpecError
from ivhl.git import changed_files, find_commit
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load
from ivhl.measure.effort import DEADLINE_S, Effort
from ivhl.tracker.support.compat import is_free_threaded
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted
from ivhl.workload import core_cases, select_cases

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec, Matrix
    from ivhl.workload import Case


# Last lines of what a process prints that are shown, such as the end of a traceback.
_SHOWN = 24


@app.command("try")
def try_command(
    *,
    workload: Annotated[
        list[str] | None,
        typer.Argument(
            help="Workloads (default: all, in their core variant); or a target outside of a "
            "project, e.g. torch.nn.functional:softmax."
        ),
    ] = None,
    python: options.OnePython = None,
    torch: options.OneRelease = None,
    size: options.OneSize = None,
    variant: options.OneVariant = None,
    device: options.Device = "cpu",
    threads: options.Threads = 1,
    deadline: options.Deadline = DEADLINE_S,
    inputs: options.Inputs = None,
    step: options.Step = False,
    requirement: options.With = None,
    network: options.Network = False,
    save: options.Save = False,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Run cases, or a function or model by its name, in one cell. No record.

    Cases are those of the uncommitted tree, with full tracebacks. --all prints all that the process
    prints, with the logs that the variable TORCH_LOGS names.

    Defaults: the newest Python that is here, the newest PyTorch release of the default tier. Exit
    code 7 if a case has no speedup, or a target does not work.
    """
    effort = Effort(device=device, threads=threads, deadline_s=deadline)
    targets = [name for name in workload or () if ":" in name]
    if targets:
        check_no_case(targets, workload or (), size, variant)
        try_target(
            targets[0], effort, inputs=inputs or (), step=step, requirements=requirement or (),
            pythons=(python,) if python else (), releases=(torch,) if torch else (),
            network=network, logs=every, as_json=as_json, save=save,
        )  # fmt: skip
        return
    if save or inputs or step or requirement or network or as_json:
        raise SpecError(
            "--save, --input, --step, --with, --network, --json: of a target, and none is given",
            hint="ivhl try package.module:function --input 8,64",
        )
    root, matrix = load()
    check_device(device)
    cases = _cases(root, workload or (), size, variant, device)
    cell = newest_cell(root, matrix, python, torch)
    console = Terminal(highlight=False, soft_wrap=True)
    changed = changed_files(root)
    tree = f"commit {find_commit(root, 'HEAD')[:8]}" + (
        f" with {counted(len(changed), 'changed file')}" if changed else ""
    )
    console.print(f"{counted(len(cases), 'case')} in {cell.id}, {tree}")
    failed = []
    room = LINES - 4 - len(cases)  # beside a line for each case, the first and the last ones
    for case in cases:
        logs = os.environ.get("TORCH_LOGS", "none") if every else None
        done = try_case(root, cell, case, effort, logs=logs, console=console)
        console.print(Text(f"{case.name}: {done.verdict}", "red" if done.code else "green"))
        most = min(_SHOWN, room - 1) if done.code or len(cases) == 1 else 0
        shown = done.told if every else done.told[-most:] if most > 0 else ()
        if shown and len(shown) < len(done.told):
            hidden = counted(len(done.told) - len(shown), "line")
            console.print(f"  ({hidden} before: --all)", style="bright_black")
        for line in shown:
            console.print(line)
        room -= len(shown) + bool(shown)
        failed += [f"{case.name}: {done.verdict}"] if done.code else []
    console.print("no record was written; ivhl bench measures commits")
    if failed:
        console.print(Text(failed[0], "red"))
        raise NoSpeedupError(
            f"{len(failed)} of {counted(len(cases), 'case')} without a speedup, which is exit code "
            f"{NoSpeedupError.exit_code}",
            hint="--all prints all that the process prints; TORCH_LOGS=recompiles adds PyTorch's",
        )
    console.print(Text(f"{counted(len(cases), 'case')} with a speedup over eager", "green"))


def _cases(
    root: Path, names: Sequence[str], size: str | None, variant: str | None, device: str
) -> tuple[Case, ...]:
    """Return the cases that are named; without a variant, those of the core variants.

    Raises:
        UnknownNameError: If a name is in no workload.
    """
    workloads = declared(root)
    found = selection_of(workloads, names, size, [variant] if variant else [], None)
    cases = select_cases(
        workloads, names=found.workloads, size=found.size, variants=found.variants, device=device
    )
    if variant is not None:
        return cases
    core = {(case.workload.name, case.variant.name) for case in core_cases(workloads, device)}
    # A workload without a core variant is represented by another one; named, all of it is meant.
    return tuple(c for c in cases if (c.workload.name, c.variant.name) in core) or cases


def newest_cell(root: Path, matrix: Matrix, python: str | None, torch: str | None) -> CellSpec:
    """Return the cell that is named, or the newest one that can be made.

    Of a Python that this machine has, if there is one: uv would have to download any other.

    Raises:
        UnknownNameError: If the matrix lacks the Python.
        SpecError: If the release does not exist.
        LockError: If the cell cannot be made.
    """
    releases = (torch,) if torch else ()
    pythons = (the_one("Python", python, matrix.pythons),) if python else ()
    cells = matrix.cells(pythons, releases)
    made = [cell for cell in cells if lock_state(root, cell).kind == "locked"]
    newest_first = (made or cells)[::-1]
    # After all others those of a free-threaded Python.
    ordered = sorted(newest_first, key=lambda one: is_free_threaded(one.python))
    found = dict.fromkeys(one.python for one in ordered)
    here = next((name for name in found if interpreter_of(root, name)), ordered[0].python)
    cell = next(one for one in ordered if one.python == here)
    hint = "name another cell with --python and --torch; ivhl matrix lists them"
    locked(root, matrix, cell, {cell.torch: torch or cell.torch}, hint)
    return cell
