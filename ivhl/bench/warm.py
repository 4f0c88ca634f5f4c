"""Prepare new cells in parallel: their environments, and the files of a first compile."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.asv.environment import copy_instrument, find_cell, make_cell
from ivhl.asv.installed import altered_files
from ivhl.errors import LockError
from ivhl.matrix.wheels import variables_set
from ivhl.measure.process import ProcessTree
from ivhl.measure.settings import CELL_VARIABLE, VARIABLE, write_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ivhl.matrix.locks import LockState
    from ivhl.measure.settings import Settings

# As for the first compile in a run (``measure.process.START_S``).
PATIENCE_S = 300.0


def warm_cells(settings: Settings, locks: Sequence[LockState], console: Console) -> None:
    """Make the cells that are not there, and fill their compile caches beside each other.

    In its first run a cell imports torch from files without bytecode and precompiles headers: 20 s
    of one core. Cells run one after the other, so all of them together would wait for all of that.
    A single new cell gains nothing. What fails here fails again in the run, which records it.

    Args:
        settings: Settings of the run.
        locks: Locks of its cells.
        console: Where it is printed that an environment is ready.
    """
    if settings.effort.device != "cpu" or settings.effort.cold:
        return
    root = Path(settings.root)
    path = root / ".asv" / "settings.json"
    write_settings(path, settings)
    warming: list[ProcessTree] = []
    # Environments read their settings from there.
    with variables_set({VARIABLE: str(path)}), ExitStack() as ending:
        new = [lock for lock in locks if _is_new(root, lock)]
        if len(new) < 2:  # noqa: PLR2004
            return
        for lock in new:
            began = time.monotonic()
            with console.status(f"making {lock.cell.id}"), suppress(LockError, OSError):
                folder = make_cell(root, lock.cell)
                seconds = time.monotonic() - began
                console.print(
                    f"{lock.cell.id}: environment ready  ({seconds:.1f} s)",
                    markup=False, soft_wrap=True,
                )  # fmt: skip
                # Before any of its code runs, as in a run.
                if not altered_files(folder, device="cpu", without=settings.project):
                    tree = _warm(settings, path, lock, folder)
                    ending.callback(tree.end)
                    warming.append(tree)
        with console.status("compiling for the first time in each cell"):
            for tree in warming:
                tree.wait(PATIENCE_S)


def _is_new(root: Path, lock: LockState) -> bool:
    try:
        return find_cell(root, lock.cell) is None
    except LockError:
        return False


def _warm(settings: Settings, path: Path, lock: LockState, folder: Path) -> ProcessTree:
    """Start ``ivhl.measure.warm`` in a cell."""
    cell = lock.cell.as_recorded(lock.sha256)
    instrument = copy_instrument(folder.parent, settings)
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return ProcessTree(
        [str(folder / "bin" / "python"), "-m", "ivhl.measure.warm"],
        cwd=instrument,
        env=kept
        | {
            VARIABLE: str(path),
            CELL_VARIABLE: json.dumps(asdict(cell)),
            "PYTHONPATH": str(instrument),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
