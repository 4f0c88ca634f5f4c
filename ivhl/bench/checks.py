"""What must hold before a run: the device, the disk, the memory, the machine, no other run."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.asv.machine import known_machine, machine_differences
from ivhl.errors import ResultsError, SpecError
from ivhl.machine.gpu import has_nvidia_driver
from ivhl.machine.memory import memory_limit
from ivhl.workload import check_memory, fits, needs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from ivhl.bench.request import Request
    from ivhl.measure.settings import Settings
    from ivhl.workload import Case

# Disk space that the records of a run need. Checked before measuring: a full disk loses results.
ROOM_BYTES = 8 * 2**20


def check_device(device: str) -> None:
    """Raise if the device has no driver: its failures would look like PyTorch's.

    Raises:
        SpecError: If the device is ``cuda`` and no NVIDIA driver is installed.
    """
    if device == "cuda" and not has_nvidia_driver():
        raise SpecError(
            "--device cuda: this machine has no NVIDIA driver",
            hint="leave out --device to measure on the CPU",
        )


def check_room(results: Path) -> None:
    """Create the results folder.

    Raises:
        ResultsError: If it cannot be written, or its disk has less than ``ROOM_BYTES`` free.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(results).free
    except OSError as error:
        raise ResultsError(
            f"cannot create the results folder: {error}", hint="choose another one with --results"
        ) from error
    if not os.access(results, os.W_OK):
        raise ResultsError(f"{results}: not writable", hint="choose another folder with --results")
    if free < ROOM_BYTES:
        raise ResultsError(
            f"{results} has {free / 2**20:.1f} MiB free; a run needs {ROOM_BYTES >> 20} MiB",
            hint="free space, or choose another folder with --results; nothing was measured yet",
        )


def those_that_fit(
    request: Request, cases: tuple[Case, ...], console: Console
) -> tuple[Case, ...]:
    """Return the cases that fit into memory; print a note that names the others.

    Raises:
        SpecError: If a case that was requested by name does not fit.
    """
    limit = request.effort.memory_limit or memory_limit()
    if request.selection.workloads or request.selection.size:
        check_memory(cases, limit)
    if too_large := [case for case in cases if not fits(case, limit)]:
        console.print(
            f"left out, not enough memory: {needs_of(too_large, limit)}",
            markup=False,
            soft_wrap=True,
        )
    return tuple(case for case in cases if fits(case, limit))


@contextmanager
def only_run_here(root: Path) -> Iterator[None]:
    """Hold the lock of this checkout: two concurrent runs would disturb each other's timings.

    asv inherits the open file, so the lock holds while asv runs, even if this process is killed.

    Raises:
        ResultsError: If another run holds the lock.
    """
    path = root / ".asv" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        os.set_inheritable(file.fileno(), True)  # noqa: FBT003  (it has no other form)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ResultsError(
                f"another run is measuring in {root} (process {file.read().strip()})",
                hint="wait for it to end, or stop it",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def only_writer(results: Path) -> Iterator[None]:
    """Hold the lock of a folder of results: two checkouts may share one, given by ``--results``.

    An import reads a file, merges it and replaces it; what another process appended in between
    would be lost. The folder itself is locked, so that no file is left in it.

    Raises:
        ResultsError: If another process holds the lock.
    """
    folder = os.open(results, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.set_inheritable(folder, True)  # noqa: FBT003  (it has no other form)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsError(
                f"another ivhl is writing to {results}, perhaps from another checkout",
                hint="wait for it to end, or choose another folder with --results",
            ) from None
        except OSError as error:
            raise ResultsError(
                f"{results} cannot be locked: {error.strerror}",
                hint="choose a folder on a disk of this machine with --results, and import it then",
            ) from error
        yield
    finally:
        os.close(folder)


@contextmanager
def only_user_of_gpu(device: str, console: Console) -> Iterator[None]:
    """Wait for the lock of this machine's GPUs and hold it; on the CPU do nothing.

    Two benchmarks on one GPU time each other. The lock is the file ``IVHL_GPU_LOCK``, by default
    ``/tmp/ivhl-gpu.lock``, which the workflow takes as well; it then sets ``IVHL_GPU_LOCK_HELD``.

    Raises:
        ResultsError: If the file cannot be opened.
    """
    if device != "cuda" or os.environ.get("IVHL_GPU_LOCK_HELD") == "1":
        yield
        return
    path = Path(os.environ.get("IVHL_GPU_LOCK") or "/tmp/ivhl-gpu.lock")  # noqa: S108  (for all users)
    try:
        # To open a file of another user in /tmp for writing, or with O_CREAT, is forbidden.
        flags = os.O_RDONLY if path.exists() else os.O_RDONLY | os.O_CREAT
        file = os.open(path, flags, 0o666)
    except OSError as error:
        raise ResultsError(
            f"the lock of the GPU cannot be opened: {path}: {error.strerror}",
            hint="set IVHL_GPU_LOCK to a file that every user of the GPU may read",
        ) from error
    try:
        os.set_inheritable(file, True)  # noqa: FBT003  (it has no other form)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"waiting: another benchmark has the GPU ({path})", soft_wrap=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def check_machine(settings: Settings) -> None:
    """Raise if another machine has results under this name: differences would look like changes.

    This happens when machines are replaced under one host name, or a script fixes the name.

    Raises:
        SpecError: If the results under that name come from another processor or system.
    """
    known = known_machine(Path(settings.results), settings.machine.name)
    different = machine_differences(known, settings.machine)
    if different:
        folder = Path(settings.results) / settings.machine.name
        raise SpecError(
            f"{folder} has results of another machine named {settings.machine.name!r}: "
            + "; ".join(different),
            hint="give this machine its own name with --machine NAME",
        )
