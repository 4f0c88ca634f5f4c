"""``ivhl compact`` and ``ivhl export``: records packed, and records for other tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ivhl.cli import app
from ivhl.cli.declared import check_suffix, results_folder, warn_unread
from ivhl.matrix.project import find_root
from ivhl.measure.alone import only_run_here, only_writer
from ivhl.tracker.compact import compact
from ivhl.tracker.export import export_parquet
from ivhl.tracker.index import open_index
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, memory

ResultsOption = Annotated[
    Path | None, typer.Option("--results", help="Folder of the results (default: results).")
]


@app.command("compact")
def compact_command(
    keep: Annotated[
        int, typer.Option(min=1, help="Commits of each cell and machine that stay as they are.")
    ] = 20,
    results: ResultsOption = None,
) -> None:
    """Pack the records of old commits; no value is lost, and every command reads them as before."""
    root = find_root()
    folder = results_folder(results, root)
    console = Terminal(highlight=False, soft_wrap=True)
    if not os.path.lexists(folder):
        console.print(f"nothing to pack: there is no {folder}")
        return
    with only_run_here(root), only_writer(folder):
        index = open_index(folder)
        warn_unread(index.problems, results)
        done = compact(folder, index, keep)
    if not done.files:
        console.print(f"nothing to pack: no cell has records of more than {keep} commits")
        return
    console.print(
        f"{counted(done.files, 'file')} packed: {memory(done.before)} before, "
        f"{memory(done.after)} now"
    )


@app.command("export")
def export_command(
    path: Annotated[Path, typer.Argument(help="File to write, e.g. records.parquet.")],
    results: ResultsOption = None,
) -> None:
    """Write all records with their samples to a Parquet file, a row each. Needs pyarrow."""
    check_suffix(path, ".parquet", "Parquet")
    index = open_index(results_folder(results, find_root()))
    warn_unread(index.problems, results)
    number = export_parquet(index, path)
    Terminal(highlight=False, soft_wrap=True).print(f"{path}: {counted(number, 'record')}")
