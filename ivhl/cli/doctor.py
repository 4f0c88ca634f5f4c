"""``ivhl doctor``: check whether this machine can measure reliably."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from ivhl.bench.tools import observe_names, observe_tools
from ivhl.cli import app
from ivhl.cli.declared import declared, folder_to_write
from ivhl.machine.cpu import observe_cpu
from ivhl.machine.disk import observe_disk
from ivhl.machine.gpu import observe_gpus
from ivhl.machine.identity import this_machine
from ivhl.machine.memory import observe_memory
from ivhl.machine.observation import LEVELS, Observation
from ivhl.machine.system import System
from ivhl.matrix.project import load
from ivhl.tracker.terminal import Terminal
from ivhl.workload import select_cases

SCHEMA = "ivhl.doctor/1"
_COLOURS = {"ok": "green", "warning": "yellow", "wrong": "red"}


@app.command("doctor")
def doctor_command(
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to measure on.")] = "cpu",
    machine: Annotated[
        str | None, typer.Option(help="Machine name in the results (default: the host name).")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of the results (default: results).")
    ] = None,
    form: Annotated[
        Literal["text", "json"], typer.Option("--format", help="Output format.")
    ] = "text",
) -> None:
    """Check whether this machine can measure reliably. Read-only.

    Exit code 1 if a check is "wrong"; 0 with warnings only.
    """
    root, matrix = load()
    here = this_machine(machine or os.uname().nodename)
    system = System()
    cases = select_cases(declared(root), device=device)
    observations = (
        *observe_cpu(system),
        *observe_memory(system, cases if device == "cpu" else ()),
        observe_disk(root / ".asv" / "env"),
        *observe_tools(root, matrix.pythons_of("default")),
        *observe_names(folder_to_write(results or root / "results"), here),
        *observe_gpus(system, wanted=device == "cuda"),
    )
    counts = Counter(one.level for one in observations)
    if form == "json":
        report = {
            "schema": SCHEMA,
            "machine": asdict(here),
            "device": device,
            "counts": {level: counts[level] for level in LEVELS},
            "findings": [asdict(one) for one in observations],
        }
        typer.echo(json.dumps(report, indent=1))
    else:
        _print(observations)
        summary = ", ".join(f"{counts[level]} {level}" for level in LEVELS)
        typer.echo(f"\n{here.name}: {summary}")
    if counts["wrong"]:
        raise typer.Exit(1)


def _print(observations: tuple[Observation, ...]) -> None:
    console = Terminal(highlight=False, soft_wrap=True)
    width = max(len(one.check) for one in observations)
    for one in observations:
        line = Text(f"{one.level:<8}", _COLOURS[one.level])
        line.append(f"{one.check:<{width}}  {one.seen}", "default")
        console.print(line)
        if one.hint:
            console.print(f"{'':<{8 + width}}  next: {one.hint}", markup=False)
