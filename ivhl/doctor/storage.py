"""Check the disk space for cells, and whether uv can share files with them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.errors import LockError
from ivhl.matrix.uv import run_uv
from ivhl.measure.finding import GB, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

# Size of a cell, and of the three cells of a session, as in the README.
CELL_BYTES = 7 * GB
SESSION_BYTES = 3 * CELL_BYTES


def look_at_storage(root: Path) -> Iterator[Finding]:
    """Yield findings about the disk that holds the cells, and uv's cache.

    Args:
        root: Root of the project.
    """
    yield _disk(root)
    yield _cache(root)


def _disk(root: Path) -> Finding:
    folder = existing(root / ".asv" / "env")
    free = shutil.disk_usage(folder).free
    seen = f"{free / GB:.0f} GB free where cells are made ({folder})"
    if free >= SESSION_BYTES:
        return Finding("disk", "ok", seen)
    hint = "make room (rm -r .asv/env makes all cells anew, uv cache prune), or fewer --torch"
    # Existing cells need no more space.
    made = any((root / ".asv" / "env").glob("*"))
    return Finding("disk", "warning" if made or free >= CELL_BYTES else "wrong", seen, hint)


def _cache(root: Path) -> Finding:
    try:
        said = run_uv(["cache", "dir"], cwd=root, timeout_s=60)
    except LockError as error:
        return Finding("uv cache", "wrong", str(error), error.hint)
    if said.returncode or not said.stdout.strip():
        told = (said.stderr.strip() or "nothing").splitlines()[0]
        return Finding(
            "uv cache", "wrong", f"uv does not report its cache folder: {told}", "see uv cache dir"
        )
    cache = Path(said.stdout.strip())
    places = [existing(path) for path in (cache, root / ".asv" / "env")]
    if places[0].stat().st_dev == places[1].stat().st_dev:
        return Finding("uv cache", "ok", f"{cache}, on the file system of the cells")
    hint = f"UV_CACHE_DIR={root / '.uv-cache'}, or any folder on that file system"
    seen = f"{cache}, on another file system than the cells: each is copied, none share files"
    return Finding("uv cache", "warning", seen, hint)


def existing(path: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
