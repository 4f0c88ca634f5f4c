"""Make the environment of a cell: a virtual environment with the packages of its lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.matrix.locks import LockState, index_options, wheels_path
from ivhl.matrix.uv import cause_of, run_uv

if TYPE_CHECKING:
    from pathlib import Path


_CROSS = "\N{MULTIPLICATION SIGN}"
_INSTALL_TIMEOUT_S = 1800.0


class CellError(Exception):
    """A cell could not be made, or the project not put into it.

    Attributes:
        output: What the failing command printed.
    """

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


def make_environment(
    root: Path,
    lock: LockState,
    interpreter: str,
    folder: Path,
    timeout_s: float = _INSTALL_TIMEOUT_S,
) -> None:
    """Make a virtual environment that holds the packages of a lock and nothing else.

    Args:
        root: Folder that has ``envs/``, of which uv reads the settings.
        lock: A lock of the kind ``locked``.
        interpreter: Path of the Python.
        folder: Where to make it.
        timeout_s: Limit for each command of uv.

    Raises:
        CellError: If uv fails.
    """
    wheels = wheels_path(root)
    uv_or_fail(root, "venv", "--no-project", "--python", interpreter, str(folder))
    uv_or_fail(
        root, "pip", "sync", "--python", str(folder),
        "--require-hashes", "--only-binary", ":all:",
        *index_options(lock.cell, of_next=lock.of_next),
        *(("--find-links", str(wheels)) if wheels.is_dir() else ()), str(lock.path),
        timeout_s=timeout_s,
    )  # fmt: skip


def uv_or_fail(cwd: Path, *arguments: str, timeout_s: float = _INSTALL_TIMEOUT_S) -> None:
    """Run uv.

    Raises:
        CellError: If it fails, with its own account in one line.
    """
    done = run_uv(arguments, cwd=cwd, timeout_s=timeout_s)
    if done.returncode == 0:
        return
    output = (done.stdout + done.stderr).strip()
    if arguments[0] == "build":
        raise CellError(f"uv build failed: {cause_of(output)}", output)
    lines = [x.strip() for x in output.splitlines() if x.strip()]
    # uv's account begins with a cross or "error", and lists every hash that it knows.
    start = next((i for i, x in enumerate(lines) if x.startswith((_CROSS, "error"))), 0)
    lists = ("sha256:", "Expected:", "Computed:")
    short = " ".join(x for x in lines[start:] if not x.startswith(lists))
    raise CellError(f"uv {' '.join(arguments[:2])} failed: {short}"[:1500], output)
