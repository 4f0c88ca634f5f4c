"""``ivhl try``: one case of the uncommitted tree, with full tracebacks and without a record.

``ivhl try package:function`` tries a function or a model by its name, in cells of the user.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import declared, interpreter_of, locked
from ivhl.cli.names import selection_of, the_one
from ivhl.cli.run import cells_of, tell_of_network
from ivhl.cli.screen import LINES, print_json
from ivhl.errors import LockError, NoSpeedupError, SpecError
from ivhl.git import changed_files, find_commit
from ivhl.init.declare import declaration, write_changes
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import find_root, load, load_project
from ivhl.measure.effort import DEADLINE_S, Effort
from ivhl.script.cells import cell_in_use, overlay_of_its_time, shipped_matrix
from ivhl.script.overlay import UnavailableError
from ivhl.script.trying import TargetTried, Trials, packages_of, read_target
from ivhl.script.verdict import details, first_line, verdict
from ivhl.tracker.support.compat import is_free_threaded
from ivhl.tracker.support.known import causes_in
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted
from ivhl.workload import Case, core_cases, select_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec, Matrix
    from ivhl.measure.target_spec import Target


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
    for name in workload or ():
        if name.endswith(".py"):
            raise SpecError(f"{name}: names no function", hint=f"e.g. ivhl try {name}:forward")
    if save or inputs or step or requirement or network or as_json:
        raise SpecError(
            "--save, --input, --step, --with, --network, --json: need a target",
            hint="ivhl try package.module:function --input 8,64",
        )
    from ivhl.bench.checks import check_device  # noqa: PLC0415  (a target needs nothing of asv)
    from ivhl.bench.trial import try_case  # noqa: PLC0415

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
            hint="--all prints all output; TORCH_LOGS=recompiles adds PyTorch's reasons",
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


SCHEMA: Final = "ivhl.try/1"
FAILED: Final = 7
# What JSON has of the findings of a cell, if they are known.
_FOUND: Final = ("inputs", "failure", "compile", "eager_s", "compiled_s", "second")
# Input of no file: whatever declares a target already is refused before the trial.
_UNKNOWN: Final = "not known yet"


def try_target(
    text: str,
    effort: Effort,
    *,
    inputs: Sequence[str] = (),
    step: bool = False,
    requirements: Sequence[str] = (),
    pythons: Sequence[str] = (),
    releases: Sequence[str] = (),
    network: bool = False,
    logs: bool = False,
    as_json: bool = False,
    save: bool = False,
) -> None:
    """Try a target in each cell, and print what is found; ``save`` declares it in this project.

    Raises:
        SpecError: If the target, an input or a release is not valid, or cannot be declared.
        typer.Exit: With 7 if it does not work in a cell.
    """
    target, folder = read_target(text, inputs, step=step)
    root = _project_for(text) if save else None
    matrix = shipped_matrix()
    named = list(releases) or [matrix.releases()[-1]]
    cells = cells_of(matrix, named, pythons)[::-1]
    console = Terminal(highlight=False, soft_wrap=True)
    told = Terminal(stderr=True, highlight=False, soft_wrap=True)
    tell_of_network(told, "target", network=network)
    results: dict[CellSpec, TargetTried] = {}
    for cell in cells:
        told.print(f"{cell.id}: {text}")
        try:
            wanted = _wanted(cell, requirements, target, folder)
            tried = _tried(cell, wanted, target, folder, effort, network=network, tell=told.print)
        except UnavailableError as error:
            tried = TargetTried({"unavailable": str(error)}, "")
        results[cell] = tried
        if not as_json:
            console.print(f"{cell.id}: {first_line(tried)}")
            known = [f"known: {cause}" for cause in _known(cell, tried)]
            for line in (*known, *details(tried), *(tried.output.splitlines() if logs else ())):
                console.print(f"  {line}")
    if root is not None:
        told.print(f"wrote {_save(root, text, list(results.values()), step=step)}")
    if as_json:
        print_json(SCHEMA, **_as_json(text, results))
    elif len(cells) > 1:
        console.print()
        for cell in reversed(cells):
            console.print(f"{cell.id:20} {first_line(results[cell])}")
    if any(verdict(tried) != "works" for tried in results.values()):
        raise typer.Exit(FAILED)


def _tried(
    cell: CellSpec,
    wanted: Sequence[str],
    target: Target,
    folder: Path | None,
    effort: Effort,
    *,
    network: bool,
    tell: Callable[[str], object],
) -> TargetTried:
    """Try a target in a cell; where it cannot be made, also with packages of the release's time."""

    def so_far(known: TargetTried) -> None:
        tell(f"{cell.id}: so far {first_line(known)}; now further calls, and a larger batch")

    def trial(overlay: str | None = None) -> TargetTried:
        with (
            cell_in_use(cell, wanted, overlay) as place,
            Trials(place, folder, effort, network=network) as trials,
        ):
            return trials.run(target, effort.deadline_s, so_far)

    first = trial()
    if wanted and not _is_made(first):
        with suppress(LockError, UnavailableError):
            older = overlay_of_its_time(cell, wanted, tell)
            if older and _is_made(second := trial(older)):
                return second
    return first


def _is_made(tried: TargetTried) -> bool:
    return (tried.found.get("failure") or {}).get("phase") != "import"


def _wanted(
    cell: CellSpec, requirements: Sequence[str], target: Target, folder: Path | None
) -> tuple[str, ...]:
    """Return what a cell holds: what is asked for and, if that has no such module, its namesake."""
    namesake, asked = packages_of(target, folder), tuple(requirements)
    if namesake and asked:
        with cell_in_use(cell, asked) as place:
            top = target.module.partition(".")[0]
            packages = f"lib/python*/site-packages/{top}"
            if any(place.glob(packages)) or any(place.glob(f"{packages}.*")):
                return asked
    return (*namesake, *asked)


def _project_for(text: str) -> Path:
    """Return the project that a target is saved in.

    Raises:
        SpecError: If there is none, or a cell of it could not import the target.
    """
    root = find_root()
    if text.partition(":")[0].endswith(".py"):
        raise SpecError(
            f"--save: {text}: a cell must import the target as a module",
            hint="name it as package.module:function",
        )
    declaration(root, load_project(root).workloads, text, [_UNKNOWN])  # refuses an existing file
    return root


def _save(root: Path, text: str, tried: Sequence[TargetTried], *, step: bool) -> Path:
    """Write the file that declares a target with the inputs that it took, and return its path.

    Raises:
        SpecError: If no cell knows its inputs, or a declaration cannot say them.
    """
    found = next((one.found for one in tried if "arguments" in one.found), None)
    if found is None:
        raise SpecError(
            f"--save: {text}: no cell could call it, so its inputs are unknown",
            hint="name them, e.g. --input 8,64",
        )
    arguments, keywords = found["arguments"], found["keywords"]
    named = keywords and (arguments or not found["is_model"])
    if named or "" in (*arguments, *keywords.values()) or (step and not found["is_model"]):
        raise SpecError(
            f"--save: {text}: a function with inputs by name, with objects or with gradients needs "
            "a function that calls it so",
            hint="write that function and workload(...) into a file of benchmarks: "
            "docs/workloads.md",
        )
    folder = load_project(root).workloads
    more = ', passes="forward"' if found["is_model"] and not step else ""
    if (dtype := found.get("dtype", "float32")) != "float32":
        more += f', dtype="{dtype}"'
    change = declaration(root, folder, text, arguments, keywords=keywords, fields=more)
    write_changes(root, [change])
    return change.path


def check_no_case(
    targets: Sequence[str], names: Sequence[str], size: str | None, variant: str | None
) -> None:
    """Refuse what belongs to a workload beside a target.

    Raises:
        SpecError: If there is a second name, a size or a variant.
    """
    if len(names) > 1 or size or variant:
        raise SpecError(
            f"{targets[0]}: is a target, and takes no size, variant or other name",
            hint="try one target at a time: ivhl try MODULE:EXPRESSION --input 8,64",
        )


def _known(cell: CellSpec, tried: TargetTried) -> list[str]:
    failure = tried.found.get("failure")
    return [str(one) for one in causes_in(cell, "", failure["message"])] if failure else []


def _as_json(text: str, results: dict[CellSpec, TargetTried]) -> dict[str, Any]:
    return {
        "target": text,
        "cells": [
            {
                "cell": cell.id,
                "python": cell.python,
                "torch": cell.torch,
                "status": verdict(tried),
                "reason": first_line(tried),
                **{name: tried.found.get(name) for name in _FOUND},
                "accuracy": tried.found.get("accuracy", []),
                "known": _known(cell, tried),
            }
            for cell, tried in results.items()
        ],
    }
