"""``ivhl lock``: resolve the packages of cells."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ivhl.cli import app, options
from ivhl.errors import IvhlError, LockError, SpecError
from ivhl.matrix.check import releases_to_lock, require_fresh
from ivhl.matrix.locks import (
    NEXT_INDEX,
    SUMS,
    lock_release,
    without_interpreter,
    write_missing_sums,
)
from ivhl.matrix.project import load
from ivhl.matrix.uv import uv_pool
from ivhl.matrix.wheels import build_missing
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ivhl.matrix.locks import LockState
    from ivhl.matrix.spec import Matrix

COLOURS = {"locked": "green", "unavailable": "yellow", "missing": "red", "stale": "red"}


@app.command("lock")
def lock_command(torch: options.Releases = None, *, force: options.Force = False) -> None:
    """Resolve the locks that are missing or stale, for all Pythons together.

    Those of the tier `next` only if IVHL_NEXT_INDEX names the index that has them. --force resolves
    fresh locks again, too.

    A release named with --torch is always resolved again, and need not be in the matrix. The locks
    of a free-threaded Python stay as they are where this machine has no such interpreter.
    """
    root, matrix = load()
    releases = releases_to_lock(root, matrix, torch, force=force)
    console = Terminal(highlight=False, soft_wrap=True)
    absent = without_interpreter(root, matrix) if releases else {}
    for path in build_missing(root, matrix):
        console.label("built", path.relative_to(root).as_posix(), "green")
    failed: list[IvhlError] = []

    def lock_one(release: str) -> tuple[LockState, ...] | IvhlError:
        try:
            return lock_release(root, matrix, release, absent)
        except IvhlError as error:
            return error

    # If one release fails, the others are still locked.
    with uv_pool(4) as pool:
        for states in pool.map(lock_one, releases):
            if isinstance(states, IvhlError):
                failed.append(states)
                continue
            for state in states:
                detail = counted(len(state.pins), "package") if state.pins else state.message
                first, *_ = detail.split("\n")
                console.label(state.kind, f"{state.cell.id}: {first}", COLOURS[state.kind])
    if write_missing_sums(root):
        console.print(f"wrote envs/locks/{SUMS}: ivhl now detects edited locks")
    for left in _left(matrix, absent, named=bool(torch)):
        console.print(left)
    _raise_joined(failed)
    require_fresh(root, matrix, releases, absent)
    if not releases:
        console.print("every lock exists and is fresh; --force resolves them again")


def _left(matrix: Matrix, absent: Iterable[str], *, named: bool) -> Iterator[str]:
    for python in absent:
        yield f"skipped {python}: no such interpreter here, so its locks are unchanged"
    if not named and not os.environ.get(NEXT_INDEX):
        for release in matrix.releases("next"):
            yield f"skipped {release}: its tier is next, and {NEXT_INDEX} is not set"


def _raise_joined(failed: Sequence[IvhlError]) -> None:
    if len(failed) == 1:
        raise failed[0]
    if failed:
        kind = SpecError if all(isinstance(error, SpecError) for error in failed) else LockError
        raise kind("\n".join(f"{error} ({error.hint})" for error in failed))
