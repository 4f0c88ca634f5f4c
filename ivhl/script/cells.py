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
from typing import TYPE_CHECKING, Final

from ivhl.errors import LockError, SpecError
from ivhl.machine.observation import Observation
from ivhl.matrix.environment import CellError, make_environment, uv_or_fail
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import MATRIX
from ivhl.matrix.spec import load_matrix
from ivhl.script import observer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ivhl.matrix.locks import LockState
    from ivhl.matrix.spec import CellSpec, Matrix

# Its ``envs`` links to the matrix and the locks of ivhl itself; a wheel holds them.
SHIPPED: Final = Path(__file__).parent
MARK: Final = "ivhl-cell.json"
LIMIT_VARIABLE: Final = "IVHL_CELLS_GB"
_LIMIT_GB: Final = 60.0
# What a cell of a CUDA build takes at most, with nothing of it in uv's cache.
_NEW_BYTES: Final = 7 << 30
# uv's words for a package that no registry has.
_UNKNOWN: Final = "was not found in the package registry"
_LONGEST: Final = 400
_CANNOT: Final = ("No solution found", "no wheels", "no usable wheels", "no matching")


class UnavailableError(Exception):
    """A cell that cannot exist: no release for this Python, or a requirement that forbids it."""


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
            f"no folder for cells: {error}", hint="set XDG_CACHE_HOME to a folder of yours"
        ) from error


@contextmanager
def cell_in_use(cell: CellSpec, requirements: Sequence[str] = ()) -> Iterator[Path]:
    """Yield the folder of a cell; make it if it is missing. It is not removed meanwhile.

    Args:
        cell: A cell of the shipped matrix.
        requirements: What it holds beside its lock, e.g. ``timm``, each in the newest version that
            allows this release and this Python.

    Raises:
        UnavailableError: If it cannot exist.
        LockError: If it cannot be made.
        InterpreterError: If this machine lacks the Python.
    """
    lock = lock_state(SHIPPED, cell)
    if lock.kind == "unavailable":
        raise UnavailableError(f"no wheel of torch {cell.torch} for Python {cell.python}")
    if lock.kind == "missing":
        raise LockError(
            f"{cell.id}: ivhl ships no lock for it", hint="name a release of `ivhl run --help`"
        )
    interpreter = find_interpreter(Path.home(), cell.python)
    made_of = {
        "lock": lock.sha256,
        "python": interpreter.full_version,
        "requirements": sorted(requirements),
    }
    digest = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]
    folder = cells_folder() / f"{cell.id}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _open_lock(folder) as lock_file:
        while True:
            fcntl.flock(lock_file, fcntl.LOCK_SH)
            if _is_whole(folder):
                break
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            if not _is_whole(folder):  # nobody has made it while this waited
                _make(folder, lock, str(interpreter.path), made_of)
        os.utime(folder / MARK)  # the time of its last use
        _install_observer(folder)  # also in a cell that an earlier ivhl has made
        yield folder


@contextmanager
def _open_lock(folder: Path) -> Iterator[int]:
    number = os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield number
    finally:
        os.close(number)


def _is_whole(folder: Path) -> bool:
    return (folder / MARK).is_file() and (folder / "bin" / "python").exists()


def _make(folder: Path, lock: LockState, interpreter: str, made_of: Mapping[str, object]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    make_room(folder.parent, _NEW_BYTES)
    requirements = [str(one) for one in made_of["requirements"]]  # type: ignore[attr-defined]
    try:
        make_environment(SHIPPED, lock, interpreter, folder)
        if requirements:
            # What the cell has stays where the requirements allow it, and torch in any case.
            uv_or_fail(
                Path.home(), "pip", "install", "--python", str(folder),
                "--only-binary", ":all:", f"torch=={lock.cell.torch}", *requirements,
            )  # fmt: skip
    except CellError as error:
        shutil.rmtree(folder, ignore_errors=True)
        if requirements and _UNKNOWN in error.output:
            raise LockError(_why(error.output), hint="check the name of the package") from error
        if requirements and any(text in error.output for text in _CANNOT):
            raise UnavailableError(f"pinned out: {_why(error.output)}") from error
        raise LockError(
            f"{lock.cell.id}: {error}", hint="see what uv says, then try again"
        ) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    mark = {"cell": lock.cell.id, **made_of, "bytes": disk_bytes(folder)}
    unfinished = folder / f"{MARK}.part"
    unfinished.write_text(json.dumps(mark), encoding="utf-8")
    unfinished.replace(folder / MARK)


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


def _why(output: str) -> str:
    """Return uv's account of what forbids it, in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    start = next((i for i, line in enumerate(lines) if "Because" in line), 0)
    text = " ".join(lines[start:]).removeprefix("cause: ")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


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
    newest_first = sorted(
        (mark for mark in cells.glob(f"*/{MARK}")), key=lambda p: p.stat().st_mtime, reverse=True
    )
    for mark in newest_first:
        with suppress(OSError, ValueError, KeyError):
            left -= json.loads(mark.read_text(encoding="utf-8"))["bytes"]
        if left < 0:
            _remove(mark.parent)


def observe_cells() -> Observation:
    """Return how many cells the user has, their size, and how to remove them."""
    folder = cells_folder()
    marks = [json.loads(mark.read_text(encoding="utf-8")) for mark in folder.glob(f"*/{MARK}")]
    size = sum(mark["bytes"] for mark in marks) / 1e9
    limit = os.environ.get(LIMIT_VARIABLE, f"{_LIMIT_GB:g}")
    seen = (
        f"{len(marks)} of scripts and targets, {size:.1f} of {limit} GB; to remove: rm -r {folder}"
    )
    return Observation("cells", "ok", seen)


def _remove(folder: Path) -> None:
    with suppress(BlockingIOError), _open_lock(folder) as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / MARK).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
