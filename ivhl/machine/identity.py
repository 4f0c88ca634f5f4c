"""What machine this is, as records describe it."""

from __future__ import annotations

import os
import re

from ivhl.errors import SpecError
from ivhl.machine.system import System
from ivhl.records.record import Machine


def this_machine(name: str) -> Machine:
    """Return a description of this machine.

    Args:
        name: Its name in the results.

    Raises:
        SpecError: If the name cannot be a folder name.
    """
    return Machine(
        name=checked_name(name),
        cpu=cpu_model(System().text("proc/cpuinfo") or "") or os.uname().machine,
        n_cpus=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        system=f"{os.uname().sysname} {os.uname().machine}",
    )


def cpu_model(cpuinfo: str) -> str:
    """Return the CPU's name from the text of ``/proc/cpuinfo``; empty if it has none."""
    lines = (line for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(lines, "").partition(":")[2].strip()


def checked_name(name: str) -> str:
    """Return a machine's name if it can be a folder name.

    Raises:
        SpecError: If it cannot.
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise SpecError(
            f"machine name {name!r}: may contain letters, digits, '_', '-' and '.', and must not "
            "begin with '-' or '.'",
            hint="it becomes a folder name; choose another one with --machine",
        )
    return name
