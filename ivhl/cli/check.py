"""``ivhl check``: whether everything that ivhl reads of this project is in order."""

from __future__ import annotations

import typer

from ivhl.cli import app
from ivhl.init.check import check_project
from ivhl.matrix.project import find_root
from ivhl.tracker.terminal import Terminal


@app.command("check")
def check_command() -> None:
    """Check every file that ivhl reads: matrix, locks, settings, benchmarks.

    Prints all problems; exit code 1 if there is one. Needs neither torch nor a network.
    """
    report = check_project(find_root())
    console = Terminal(highlight=False, soft_wrap=True)
    for text in report.problems:
        console.print("problem:", style="red", end=" ")
        console.print(text, markup=False)
    for text in report.notes:
        console.print("note:", end=" ")
        console.print(text, markup=False)
    if report.problems:
        console.print("next: correct them; ivhl matrix lock makes missing and stale locks")
        raise typer.Exit(1)
    console.print(f"in order: {report.summary}")
