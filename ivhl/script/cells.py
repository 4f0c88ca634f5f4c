"""The cells of a user outside of any project: made from the locks that ship with ivhl, bounded.

Each is a folder of ``$XDG_CACHE_HOME/ivhl/cells``, whole or gone: a folder without ``MARK`` is
removed and made again. A lock beside it is held shared while the cell is used, alone while it is
made or removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ivhl.errors import LockError, SpecError
from ivhl.machine.observation import Observation
from ivhl.matrix.environment import CellError, make_environment
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import LockState, lock_state
from ivhl.matrix.project import MATRIX
from ivhl.matrix.releases import last_day_of
from ivhl.matrix.spec import CellSpec, Matrix, load_matrix
from ivhl.records.files import replaced_whole
from ivhl.script import observer
from ivhl.script.overlay import UnavailableError, check_python, lay_over, overlay_lock
from ivhl.tracker.store.kept import read_object
from ivhl.tracker.wording import some

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Mapping, Sequence


# Its ``envs`` links to the matrix and the locks of ivhl itself; a wheel holds them.
SHIPPED: Final = Path(__file__).parent
MARK: Final = "ivhl-cell.json"
LIMIT_VARIABLE: Final = "IVHL_CELLS_GB"
_LIMIT_GB: Final = 60.0
# What a cell of a CUDA build takes at most, with nothing of it in uv's cache.
_CELL_BYTES: Final = 7 << 30
# What an overlay takes; that of most libraries has a tenth.
_OVERLAY_BYTES: Final = 1 << 30
_SHOWN: Final = 5


def shipped_matrix() -> Matrix:
    """Return the matrix that ships with ivhl."""
    return load_matrix(SHIPPED / MATRIX)


def cells_folder() -> Path:
    """Return the folder of the user's cells.

    Raises:
        SpecError: If the user has no home.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ivhl" / "cells"
    except RuntimeError as error:
        raise SpecError(
            f"no folder for cells: {error}", hint="set XDG_CACHE_HOME to your own folder"
        ) from error


@contextmanager
def cell_in_use(
    cell: CellSpec, requirements: Sequence[str] = (), overlay: str | None = None
) -> Iterator[Path]:
    """Yield the folder of a cell; make it if it is missing. It is not removed meanwhile.

    With requirements it is the folder of an overlay, and the cell is not removed either.

    Args:
        cell: A cell of the shipped matrix.
        requirements: What it holds beside its lock, e.g. ``timm``, each in the newest version that
            allows this release and this Python.
        overlay: The lock of an overlay to make again, in place of a new one.

    Raises:
        UnavailableError: If it cannot exist.
        LockError: If it cannot be made.
        InterpreterError: If this machine lacks the Python.
    """
    lock = _lock_of(cell)
    python = find_interpreter(Path.home(), cell.python)
    of_base, of_overlay = _made_of(lock, python.full_version, requirements, overlay)
    base, folder = _folder(cell, of_base), _folder(cell, of_overlay)
    if folder != base and overlay is None and not _is_whole(folder):
        # Before the cell is made: of what cannot exist, nothing is downloaded.
        overlay = overlay_lock(python.path, lock, requirements)

    def make_base() -> dict[str, Any]:
        make_room(base.parent, _CELL_BYTES)
        make_environment(SHIPPED, lock, str(python.path), base)
        return {"cell": cell.id, **of_base}

    def make_overlay() -> dict[str, Any]:
        text = overlay_lock(python.path, lock, requirements) if overlay is None else overlay
        make_room(base.parent, _OVERLAY_BYTES)
        added = lay_over(base, lock, text, folder)
        check_python(folder, requirements, python.full_version.removesuffix("t"))
        return {"cell": cell.id, **of_overlay, "added": added}

    with _in_use(base, make_base):
        _install_observer(base)  # also in a cell that an earlier ivhl has made
        if folder == base:
            yield base
            return
        with _in_use(folder, make_overlay):
            yield folder


def newest_overlay(
    cell: CellSpec, requirements: Sequence[str], until: dt.date | None = None
) -> str:
    """Return the lock of an overlay with the versions that are the newest now, or were on a day.

    Raises:
        IvhlError: As ``cell_in_use``.
    """
    python = find_interpreter(Path.home(), cell.python)
    return overlay_lock(python.path, _lock_of(cell), requirements, until)


def overlay_of_its_time(
    cell: CellSpec, requirements: Sequence[str], tell: Callable[[str], object]
) -> str | None:
    """Return the lock of an overlay with the versions of when the cell's release was the newest.

    The newest version of a library does not always say which releases it is made for.

    Returns:
        ``None`` if the release still is the newest, or no versions of that time can be found.
    """
    with suppress(LockError, UnavailableError):
        if until := last_day_of(cell.python, cell.torch):
            text = newest_overlay(cell, requirements, until)
            added = [line.partition(" ")[0] for line in text.splitlines()]
            tell(f"{cell.id}: again, with the versions of {until}: {some(added, _SHOWN)}")
            return text
    return None


def _made_of(
    lock: LockState, python: str, requirements: Sequence[str], overlay: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what tells a cell from others, and an overlay; the same twice without one."""
    of_base = {"lock": lock.sha256, "python": python, "requirements": list[str]()}
    of_overlay = {**of_base, "requirements": sorted(requirements)}
    if requirements or overlay is not None:
        of_overlay["base"] = _folder(lock.cell, of_base).name
    if overlay is not None:
        of_overlay["overlay"] = hashlib.sha256(overlay.encode()).hexdigest()
    return of_base, of_overlay


def _lock_of(cell: CellSpec) -> LockState:
    lock = lock_state(SHIPPED, cell)
    if lock.kind == "unavailable":
        raise UnavailableError(
            f"no wheel of torch {cell.torch} for Python {cell.python}", "no wheel"
        )
    if lock.kind == "missing":
        raise LockError(
            f"{cell.id}: ivhl ships no lock for it", hint="name a release of `ivhl run --help`"
        )
    return lock


def _folder(cell: CellSpec, made_of: Mapping[str, object]) -> Path:
    digest = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]
    return cells_folder() / f"{cell.id}-{digest}"


@contextmanager
def _in_use(folder: Path, make: Callable[[], Mapping[str, object]]) -> Iterator[None]:
    """Keep a folder from being removed; make it if it is missing, whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _open_lock(folder) as lock_file:
        while True:
            fcntl.flock(lock_file, fcntl.LOCK_SH)
            if _is_whole(folder):
                break
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            if not _is_whole(folder):  # nobody has made it while this waited
                _make(folder, make)
        os.utime(folder / MARK)  # the time of its last use
        yield


@contextmanager
def _open_lock(folder: Path) -> Iterator[int]:
    number = os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield number
    finally:
        os.close(number)


def _is_whole(folder: Path) -> bool:
    return bool(_mark(folder)) and (folder / "bin" / "python").exists()


def _mark(folder: Path) -> dict[str, Any]:
    """Return what the mark of a cell says; empty without one, or of a damaged one."""
    about = read_object(folder / MARK)
    return about if isinstance(about.get("bytes"), int | float) else {}


def _make(folder: Path, make: Callable[[], Mapping[str, object]]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        mark = {**make(), "bytes": disk_bytes(folder)}
        with replaced_whole(folder / MARK) as unfinished:
            unfinished.write_text(json.dumps(mark), encoding="utf-8")
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, (CellError, OSError)):
            raise LockError(
                f"{folder.name}: {error}", hint="read uv's message, then try again"
            ) from error
        raise


def _install_observer(folder: Path) -> None:
    (packages,) = folder.glob("lib/python3*/site-packages")
    source = Path(observer.__file__).read_text(encoding="utf-8")
    for name, text in (
        (f"{observer.MODULE}.py", source),
        (f"{observer.MODULE}.pth", observer.PTH),
    ):
        path = packages / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            unfinished = packages / f"{name}.{os.getpid()}"
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)


def disk_bytes(folder: Path) -> int:
    """Return the bytes on disk of a folder; of a file with several links, its share."""
    total = 0.0
    for path in folder.rglob("*"):
        with suppress(OSError):
            about = path.lstat()
            total += about.st_blocks * 512 / about.st_nlink
    return int(total)


def make_room(cells: Path, needed: int) -> None:
    """Remove the cells that were not used for the longest time, until so many bytes fit.

    Args:
        cells: Folder of the cells.
        needed: Bytes of what comes; the limit is 60 GB, or ``IVHL_CELLS_GB``.

    Raises:
        SpecError: If ``IVHL_CELLS_GB`` is no number.
    """
    text = os.environ.get(LIMIT_VARIABLE, str(_LIMIT_GB))
    try:
        left = float(text) * 1e9 - needed
    except ValueError:
        raise SpecError(
            f"{LIMIT_VARIABLE}: must be a number of gigabytes (got {text!r})",
            hint=f"e.g. {LIMIT_VARIABLE}=100",
        ) from None
    marks = cells.glob(f"*/{MARK}")
    for mark in sorted(marks, key=lambda path: path.stat().st_mtime, reverse=True):
        left -= _mark(mark.parent).get("bytes", 0)
        if left < 0:
            _remove(mark.parent)


def observe_cells() -> Observation:
    """Return how many cells the user has, their size, and how to remove them."""
    folder = cells_folder()
    marks = list(filter(None, map(_mark, folder.glob("*/"))))
    size = sum(mark["bytes"] for mark in marks) / 1e9
    limit = os.environ.get(LIMIT_VARIABLE, f"{_LIMIT_GB:g}")
    seen = (
        f"{len(marks)} of scripts and targets, {size:.1f} of {limit} GB; to remove: rm -r {folder}"
    )
    return Observation("cells", "ok", seen)


def _remove(folder: Path) -> None:
    """Remove a cell with its overlays, unless it is in use; an overlay uses its cell."""
    with suppress(BlockingIOError), _open_lock(folder) as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / MARK).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        for mark in folder.parent.glob(f"*/{MARK}"):
            if _mark(mark.parent).get("base") == folder.name:
                _remove(mark.parent)
