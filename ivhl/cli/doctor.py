"""``ivhl doctor``: check whether this machine can measure reliably."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from ivhl.bench.checks import observe_names, observe_tools
from ivhl.cli import app, options
from ivhl.cli.declared import declared, folder_to_write
from ivhl.cli.screen import print_json, screen
from ivhl.errors import SpecError
from ivhl.machine.cpu import observe_cpu
from ivhl.machine.disk import observe_disk
from ivhl.machine.gpu import observe_gpus
from ivhl.machine.identity import this_machine
from ivhl.machine.memory import observe_memory
from ivhl.machine.observation import LEVELS, Observation
from ivhl.machine.system import System
from ivhl.matrix.project import find_root, load
from ivhl.script.cells import observe_cells
from ivhl.workload import select_cases

if TYPE_CHECKING:
    from ivhl.records.record import Machine
    from ivhl.tracker.terminal import Terminal

SCHEMA = "ivhl.doctor/1"
_COLOURS = {"ok": "green", "warning": "yellow", "wrong": "red"}


@app.command("doctor")
def doctor_command(
    device: options.Device = "cpu",
    machine: options.OneMachine = None,
    results: options.Results = None,
    *,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Check whether this machine can measure reliably. Read-only.

    Outside of a project it checks the machine alone. Exit code 1 if a check is "wrong"; 0 with
    warnings only.
    """
    here = this_machine(machine)
    system = System()
    root, of_project = _of_project(results, here)
    cases = select_cases(declared(root), device=device) if root else ()
    observations = (
        *observe_cpu(system),
        *observe_memory(system, cases if device == "cpu" else ()),
        observe_disk((root or Path.cwd()) / ".asv" / "env"),
        observe_cells(),
        *of_project,
        *observe_gpus(system, wanted=device == "cuda"),
    )
    counts = Counter(one.level for one in observations)
    if as_json:
        print_json(
            SCHEMA,
            machine=asdict(here),
            device=device,
            counts={level: counts[level] for level in LEVELS},
            findings=[asdict(one) for one in observations],
        )
    else:
        with screen(every=every) as console:
            _print(console, observations)
        summary = ", ".join(f"{counts[level]} {level}" for level in LEVELS)
        alone = "" if root else "; no ivhl project here, so the machine alone was checked"
        typer.echo(f"{here.name}: {summary}{alone}")
    if counts["wrong"]:
        raise typer.Exit(1)


def _of_project(
    results: Path | None, here: Machine
) -> tuple[Path | None, tuple[Observation, ...]]:
    """Return the root of the project, and what is seen of it; nothing outside of a project."""
    try:
        root = find_root()
    except SpecError:
        return None, ()
    _, matrix = load(root)
    folder = folder_to_write(results or root / "results")
    return root, (*observe_tools(root, matrix.pythons_of("default")), *observe_names(folder, here))


def _print(console: Terminal, observations: tuple[Observation, ...]) -> None:
    width = max(len(one.check) for one in observations)
    for one in observations:
        line = Text(f"{one.level:<8}", _COLOURS[one.level])
        line.append(f"{one.check:<{width}}  {one.seen}", "default")
        console.print(line)
        if one.hint:
            console.print(f"{'':<{8 + width}}  next: {one.hint}")
