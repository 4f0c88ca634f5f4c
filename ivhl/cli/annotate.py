"""``ivhl annotate``: keep a person's word on a known change."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ivhl.cli import app
from ivhl.cli.declared import results_folder, warn_unread
from ivhl.errors import SpecError
from ivhl.git import find_commit
from ivhl.matrix.project import find_root
from ivhl.tracker.annotations import Annotation, annotate
from ivhl.tracker.index import open_index


@app.command("annotate")
def annotate_command(
    place: Annotated[
        str, typer.Argument(help="Where it changed: a commit, PyTorch release or Python.")
    ],
    text: Annotated[str, typer.Argument(help="What is known about it.")],
    cases: Annotated[
        str, typer.Option(help="Cases it is about: WORKLOAD/SIZE/VARIANT, with * and ?.")
    ] = "*",
    until: Annotated[
        str, typer.Option(help="Release or Python from which it no longer holds.")
    ] = "",
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of the results (default: results).")
    ] = None,
) -> None:
    """Say what is known about a change; `ivhl regressions` shows it. Commit the file."""
    root = find_root()
    folder = results_folder(results, root)
    if not text.strip():
        raise SpecError("the text must not be empty", hint='e.g. "expected: exact formula now"')
    index = open_index(folder)
    warn_unread(index.problems, results)
    if not any(place in (entry.torch, entry.python) for entry in index.entries):
        place = find_commit(root, place)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    annotate(folder, Annotation(place, cases, text.strip(), at, until))
