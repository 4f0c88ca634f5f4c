"""Locks that keep other processes away from a checkout, results or the GPU."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.errors import ResultsError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MISSING = "ivhl: no device: "
# A device is there if a tensor can be made on it and waited for.
_ASKED = f"""
import sys, torch
name = sys.argv[1]
try:
    torch.ones(1, device=name)
    getattr(torch, name).synchronize()
except Exception as error:
    print({_MISSING!r} + str(error).split(chr(10))[0][:100])
"""


@contextmanager
def only_run_here(root: Path) -> Iterator[None]:
    """Hold the lock of this checkout: two concurrent runs would disturb each other's timings.

    What supervises asv inherits the open file: if this process is killed, the lock holds until all
    that asv started has ended.

    Raises:
        ResultsError: If another run holds the lock, or its file is a link, a pipe or a device.
    """
    path = root / ".asv" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Through a link that a repository brings along, another file would be emptied below.
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ResultsError(f"{path}: must be a plain file", hint="remove it: ivhl makes it again")
    with path.open("a+") as file:
        if not _lock(file.fileno(), fcntl.LOCK_EX):
            file.seek(0)
            raise ResultsError(
                f"another run is measuring in {root} (process {file.read().strip()})",
                hint="wait for it to end, or stop it",
            )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _lock(file: int, kind: int) -> bool:
    """Lock an open file, also for what this process starts; return whether nobody else has it."""
    os.set_inheritable(file, True)  # noqa: FBT003  (it has no other form)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def only_writer(results: Path, *, beside_others: bool = False) -> Iterator[None]:
    """Hold the lock of a folder of results: two checkouts may share one, given by ``--results``.

    An import reads a file, merges it and replaces it; what another process appended in between
    would be lost. The folder itself is locked, so that no file is left in it.

    Args:
        results: The folder, which exists.
        beside_others: Whether this process only appends, so that others may append, too.

    Raises:
        ResultsError: If another process holds the lock; or, unless ``beside_others``, if the folder
            cannot be locked, as on some network file systems.
    """
    kind = fcntl.LOCK_SH if beside_others else fcntl.LOCK_EX
    folder = os.open(results, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            locked = _lock(folder, kind)
        except OSError as error:
            if not beside_others:  # who cannot lock it either replaces nothing there
                raise ResultsError(
                    f"{results} cannot be locked: {error.strerror}",
                    hint="choose a folder on a disk of this machine with --results, and import it "
                    "then",
                ) from error
            locked = True
        if not locked:
            raise ResultsError(
                f"another ivhl is writing to {results}, perhaps from another checkout",
                hint="wait for it to end, or choose another folder with --results",
            )
        yield
    finally:
        os.close(folder)


def refuse_without_device(device: str) -> None:
    """Raise if cases are to run on a device that the PyTorch of this environment does not see.

    Each case would fail, and its record blame this PyTorch. A PyTorch that does not import is left
    to the cases, which say so.

    Args:
        device: As PyTorch names its type, e.g. ``cuda``, also for a GPU of AMD.

    Raises:
        SpecError: If there is none, or PyTorch cannot wait for it.
    """
    if device == "cpu":
        return
    if not re.fullmatch("[a-z]+", device):
        raise SpecError(
            f"--device {ascii(device)[:100]}: must be lower-case letters, as in records",
            hint="PyTorch's name of the device without its number, e.g. cuda",
        )
    # -P: a torch.py of the current folder is not asked.
    asked = [sys.executable, "-P", "-c", _ASKED, device]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    _, missing, why = done.stdout.rpartition(_MISSING)
    if missing:
        raise SpecError(
            f"--device {device}: this PyTorch sees no such device: {why.strip()}",
            hint="leave out --device to measure on the CPU; docs/runners.md sets up a GPU",
        )


@contextmanager
def only_user_of_gpu(device: str, say: Callable[[str], object]) -> Iterator[None]:
    """Wait for the lock of this machine's GPUs and hold it; on the CPU do nothing.

    Two benchmarks on one GPU time each other. The lock is the file ``IVHL_GPU_LOCK``, by default
    ``/tmp/ivhl-gpu.lock``, which the workflow takes as well; it then sets ``IVHL_GPU_LOCK_HELD``.

    Args:
        device: As PyTorch names its type.
        say: Prints a line, where it has to wait.

    Raises:
        ResultsError: If the file cannot be opened.
    """
    if device == "cpu" or os.environ.get("IVHL_GPU_LOCK_HELD") == "1":
        yield
        return
    path = Path(os.environ.get("IVHL_GPU_LOCK") or "/tmp/ivhl-gpu.lock")  # noqa: S108  (for all users)
    try:
        # To open a file of another user in /tmp for writing, or with O_CREAT, is forbidden. Who left
        # a pipe there would let this wait without end.
        flags = os.O_RDONLY | os.O_NONBLOCK
        file = os.open(path, flags if path.exists() else flags | os.O_CREAT, 0o666)
    except OSError as error:
        raise ResultsError(
            f"the lock of the GPU cannot be opened: {path}: {error.strerror}",
            hint="set IVHL_GPU_LOCK to a file that every user of the GPU may read",
        ) from error
    try:
        if not _lock(file, fcntl.LOCK_EX):
            say(f"waiting: another benchmark has the GPU ({path})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
