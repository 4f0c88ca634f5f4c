"""What must hold before a run: the device, the disk, the memory, the machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.asv.machine import known_machine, machine_differences
from ivhl.errors import ResultsError, SpecError
from ivhl.machine.gpu import has_nvidia_driver
from ivhl.machine.memory import memory_limit
from ivhl.workload import check_memory, fits, needs_of

if TYPE_CHECKING:
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
        console.print(f"left out, not enough memory: {needs_of(too_large, limit)}", soft_wrap=True)
    return tuple(case for case in cases if fits(case, limit))


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
