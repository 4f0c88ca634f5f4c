"""``ivhl doctor``: check whether this machine can measure reliably."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from ivhl.cli import app
from ivhl.doctor import LEVELS, Finding, examine
from ivhl.matrix.project import load, load_project
from ivhl.measure.runner import this_machine
from ivhl.workload import load_workloads, select_cases

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
    findings = examine(
        root,
        pythons=matrix.pythons,
        cases=select_cases(load_workloads(load_project(root).workloads), device=device),
        results=(results or root / "results").resolve(),
        machine=here,
        device=device,
    )
    counts = Counter(finding.level for finding in findings)
    if form == "json":
        report = {
            "schema": SCHEMA,
            "machine": asdict(here),
            "device": device,
            "counts": {level: counts[level] for level in LEVELS},
            "findings": [asdict(finding) for finding in findings],
        }
        typer.echo(json.dumps(report, indent=1))
    else:
        _print(findings)
        summary = ", ".join(f"{counts[level]} {level}" for level in LEVELS)
        typer.echo(f"\n{here.name}: {summary}")
    if counts["wrong"]:
        raise typer.Exit(1)


def _print(findings: tuple[Finding, ...]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        line = Text(f"{finding.level:<8}", _COLOURS[finding.level])
        line.append(f"{finding.check:<{width}}  {finding.seen}", "default")
        console.print(line)
        if finding.hint:
            console.print(f"{'':<{8 + width}}  next: {finding.hint}", markup=False)
