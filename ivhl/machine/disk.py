"""Check the disk space for cells."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ivhl.machine.observation import Observation

if TYPE_CHECKING:
    from pathlib import Path

GB = 10**9
# Size of a cell, and of the six cells of a session, as in the README.
CELL_BYTES = 7 * GB
SESSION_BYTES = 6 * CELL_BYTES


def observe_disk(cells: Path) -> Observation:
    """Return whether the disk has space for the cells of a session.

    Args:
        cells: Folder of the cells, which need not exist.
    """
    folder = existing(cells)
    free = shutil.disk_usage(folder).free
    seen = f"{free / GB:.0f} GB free for cells ({folder})"
    if free >= SESSION_BYTES:
        return Observation("disk", "ok", seen)
    hint = (
        "free space (uv cache prune; rm -r .asv/env, then all cells are made again), "
        "or measure fewer releases (--torch)"
    )
    # Existing cells need no more space.
    made = any(cells.glob("*"))
    return Observation("disk", "warning" if made or free >= CELL_BYTES else "wrong", seen, hint)


def existing(path: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
