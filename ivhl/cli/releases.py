"""``ivhl matrix --new``: releases that the matrix lacks."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import typer

from ivhl.cli.lock import COLOURS
from ivhl.cli.markdown import code, table
from ivhl.cli.screen import print_json
from ivhl.matrix.releases import find_new_releases, support_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.matrix.releases import WheelSupport
    from ivhl.matrix.spec import Matrix
    from ivhl.tracker.terminal import Terminal


def show_new_releases(
    console: Terminal,
    root: Path,
    matrix: Matrix,
    torch: Sequence[str],
    *,
    form: str | None,
    as_json: bool,
) -> None:
    """Print PyTorch releases that the matrix lacks, with the Pythons that can install them.

    Lists releases newer than the matrix's newest, and newer patches of its minor releases; or those
    that are named, new or not. Writes nothing.
    """
    today = dt.datetime.now(tz=dt.UTC).date()
    named = tuple(dict.fromkeys(matrix.release(text) for text in torch))
    support = {
        release: support_of(root, matrix, release, today)
        for release in named or find_new_releases(root, matrix)
    }
    if as_json:
        found = {
            release: {one.cell.python: {"lock": one.kind, "message": one.message} for one in row}
            for release, row in support.items()
        }
        print_json("ivhl.releases/1", releases=found)
        return
    for release, row in support.items():
        if form == "github":
            typer.echo(_release_markdown(release, row, today))
            continue
        for one in row:
            colour = COLOURS.get(one.kind, "red")
            console.print(one.kind, style=colour, end=" ")
            console.print(f"{one.cell.id}:", end=" ")
            reason = one.message or "all its requirements can be installed"
            console.print(reason.partition("\n")[0])
    if not support and form is None:
        console.print(
            f"no release newer than the matrix: {', '.join(matrix.releases('extended'))}"
        )


def _release_markdown(release: str, row: Sequence[WheelSupport], today: dt.date) -> str:
    words = {"locked": "yes", "unavailable": "no", "undecided": "unknown"}
    rows = [
        [
            one.cell.python,
            words[one.kind],
            code(one.message.partition("\n")[0]) * bool(one.message),
        ]
        for one in row
    ]
    measure = (
        f"set `exclude-newer` of `envs/matrix.toml` to {today.isoformat()}, add a `[[torch]]` row, "
        f"run `nox -s lock`, commit, `nox -s bench-{row[-1].cell.python} -- --torch {release}`"
    )
    return "\n".join(
        [
            f"PyTorch {release}: what `ivhl matrix --new` finds in the package registry.",
            "",
            *table(["Python", "can be installed", "why not"], rows),
            "",
            f"To see whether it compiles, measure it: {measure}.",
        ]
    )
