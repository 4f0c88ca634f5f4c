"""Check the matrix and its locks: all problems at once, or which locks are stale and to be made."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

from ivhl.errors import InterpreterError, LockError
from ivhl.matrix.diff import diff_locks
from ivhl.matrix.locks import NEXT_INDEX, LockState, changed_locks, lock_mistakes, lock_state
from ivhl.matrix.wheels import wheel_mistakes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec, Matrix


def check_locks(root: Path, matrix: Matrix) -> list[str]:
    """Return the problems of the matrix's locks, one line each.

    Every cell must have a lock that is fresh, hashed and free of addresses and paths, or a fresh
    statement that it is unavailable. The cells of a release must be matched, and so must those of a
    Python. Every forced difference must still exist.
    """
    problems: list[str] = []
    states: dict[CellSpec, LockState] = {}
    for cell in (*matrix.cells(tier="extended"), *matrix.cells(tier="next")):
        try:
            state = lock_state(root, cell)
        except LockError as error:
            problems.append(str(error))
            continue
        if state.kind == "missing" and matrix.tier(cell) == "next":
            continue  # not everybody has the index
        mistakes = lock_mistakes(state, matrix)
        problems += mistakes
        if state.kind == "locked" and not mistakes:
            states[cell] = state
    problems += changed_locks(root)
    problems += wheel_mistakes(root, matrix)
    problems += _not_matched(matrix, states)
    problems += _not_needed(matrix, states)
    return problems


def _not_matched(matrix: Matrix, states: Mapping[CellSpec, LockState]) -> Iterator[str]:
    """Yield why neighbouring cells are not matched; other pairs are not checked."""
    columns = [
        [cell for cell in states if cell.torch == release]
        for release in matrix.releases("extended")
    ]
    rows = [[cell for cell in states if cell.python == python] for python in matrix.pythons]
    for line in (*columns, *rows):
        for first, second in pairwise(line):
            diff = diff_locks(matrix, states[first], states[second])
            yield from (
                f"{first.id} and {second.id} are not matched: {reason}" for reason in diff.reasons
            )


def _not_needed(matrix: Matrix, states: Mapping[CellSpec, LockState]) -> Iterator[str]:
    for index, row in enumerate(matrix.forced):
        there = [s for cell, s in states.items() if cell.torch == row.torch]
        have = [s.cell.python for s in there if row.package in s.packages]
        named = [s.cell.python for s in there if s.cell.python in row.pythons]
        # A single Python shows no difference; the missing lock of another is reported elsewhere.
        if len(there) > 1 and (have != named or len(have) in (0, len(there))):
            yield (
                f"matrix.toml: forced.{index}: no longer holds: {row.package} of torch "
                f"{row.torch} is in the locks for Python {', '.join(have) or 'none'} "
                f"(got {', '.join(row.pythons)})"
            )


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
