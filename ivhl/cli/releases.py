"""``ivhl matrix --new``: releases that the matrix lacks."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from ivhl.cli.lock import COLOURS
from ivhl.cli.screen import print_json
from ivhl.matrix.releases import find_new_releases, support_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.matrix.spec import Matrix
    from ivhl.tracker.terminal import Terminal


def show_new_releases(
    console: Terminal, root: Path, matrix: Matrix, torch: Sequence[str], *, as_json: bool
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
    for row in support.values():
        for one in row:
            colour = COLOURS.get(one.kind, "red")
            console.print(one.kind, style=colour, end=" ")
            console.print(f"{one.cell.id}:", end=" ")
            reason = one.message or "all its requirements can be installed"
            console.print(reason.partition("\n")[0])
    if not support:
        console.print(
            f"no release newer than the matrix: {', '.join(matrix.releases('extended'))}"
        )
