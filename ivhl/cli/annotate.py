"""``ivhl annotate``: keep a person's word on a known change."""

from __future__ import annotations

from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from ivhl.cli import app, options
from ivhl.cli.declared import results_folder, warn_unread
from ivhl.cli.names import the_one
from ivhl.errors import SpecError, UnknownNameError
from ivhl.git import find_commit
from ivhl.matrix.project import find_root
from ivhl.tracker.changes.annotations import NAME, Annotation, annotate
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import case_name
from ivhl.tracker.wording import counted


@app.command("annotate")
def annotate_command(
    place: Annotated[
        str, typer.Argument(help="Where it changed: a commit, PyTorch release or Python.")
    ],
    text: Annotated[str, typer.Argument(help="What is known about it.")],
    case: options.Cases = None,
    until: options.Until = "",
    results: options.Results = None,
) -> None:
    """Note what is known about a change, for `ivhl regressions`. Commit the file.

    --case may hold * and ?, also for cases that have no record yet; without it, all cases are meant.
    """
    root = find_root()
    folder = results_folder(results, root)
    if not text.strip():
        raise SpecError("the text must not be empty", hint='e.g. "expected: exact formula now"')
    index = open_index(folder)
    warn_unread(index.problems, results)
    places = {name for entry in index.entries for name in (entry.torch, entry.python)}
    if place not in places:
        if "." in place:  # no commit has one
            raise UnknownNameError("PyTorch release or Python", place, places)
        place = find_commit(root, place)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    known = {case_name(entry.case) for entry in index.entries}
    patterns = [
        one if set("*?") & set(one) else the_one("case", one, known) for one in case or ["*"]
    ]
    for pattern in patterns:
        annotate(folder, Annotation(place, pattern, text.strip(), at, until))
        found = sum(fnmatchcase(name, pattern) for name in known)
        typer.echo(f"{place}: noted for {pattern}, {counted(found, 'case')} with records")
    typer.echo(f"commit {folder / NAME}")
