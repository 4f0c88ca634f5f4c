"""Which locks are fresh, and which releases have to be locked again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ivhl.errors import InterpreterError, LockError
from ivhl.matrix.locks import NEXT_INDEX, lock_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec, Matrix

_FRESH = {"locked", "unavailable"}


def state_of(root: Path, matrix: Matrix, cell: CellSpec) -> dict[str, str]:
    """Return the state of a cell's lock, and what is wrong with it."""
    try:
        state = lock_state(root, cell)
    except LockError as error:
        return {"lock": "damaged", "message": str(error)}
    return {"lock": "stale" if state.stale(matrix) else state.kind, "message": state.message}


def require_fresh(
    root: Path, matrix: Matrix, releases: Sequence[str], absent: Mapping[str, InterpreterError]
) -> None:
    """Refuse what was left without a fresh lock and what `ivhl check locks` would report.

    Raises:
        InterpreterError: If there is such a cell.
    """
    for python, error in absent.items():
        cells = matrix.cells([python], releases)
        left = [
            cell.id
            for cell in cells
            if matrix.tier(cell) not in {None, "next"}
            and state_of(root, matrix, cell)["lock"] not in _FRESH
        ]
        if left:
            raise InterpreterError(f"not locked: {', '.join(left)}: {error}", hint=error.hint)


def releases_to_lock(
    root: Path, matrix: Matrix, torch: Sequence[str] | None, *, force: bool
) -> Sequence[str]:
    """Return the releases that are named, or that a cell without a fresh lock has.

    Args:
        root: Root of the project.
        matrix: Its matrix.
        torch: Releases as they were given, which are always locked again.
        force: Whether to return all of them.

    Raises:
        SpecError: If one is no release.
    """
    if torch:
        return tuple(dict.fromkeys(matrix.release(text) for text in torch))
    there = matrix.every_release if os.environ.get(NEXT_INDEX) else matrix.releases("extended")
    return [
        release
        for release in there
        if force
        or any(
            state_of(root, matrix, cell)["lock"] not in _FRESH
            for cell in matrix.cells(releases=[release])
        )
    ]
