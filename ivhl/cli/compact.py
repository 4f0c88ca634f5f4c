"""``ivhl compact``: pack the records of old commits."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ivhl.cli import app, options
from ivhl.cli.declared import results_folder, warn_unread
from ivhl.matrix.project import find_root
from ivhl.measure.alone import only_run_here, only_writer
from ivhl.tracker.store.compact import compact
from ivhl.tracker.store.index import open_index
from ivhl.tracker.wording import counted, memory


@app.command("compact")
def compact_command(
    keep: Annotated[
        int,
        typer.Argument(
            metavar="COMMITS", min=1, help="Commits of each cell and machine to leave alone."
        ),
    ] = 20,
    results: options.Results = None,
) -> None:
    """Pack the records of old commits; no value is lost."""
    root = find_root()
    folder = results_folder(results, root)
    if not os.path.lexists(folder):
        typer.echo(f"nothing to pack: there is no {folder}")
        return
    with only_run_here(root), only_writer(folder):
        index = open_index(folder)
        warn_unread(index.problems, results)
        done = compact(folder, index, keep)
    if not done.files:
        typer.echo(f"nothing to pack: no cell has records of more than {keep} commits")
        return
    typer.echo(
        f"{counted(done.files, 'file')} packed: {memory(done.before)} before, "
        f"{memory(done.after)} now"
    )
