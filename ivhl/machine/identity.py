"""What machine this is, as records describe it."""

from __future__ import annotations

import os
import re

from ivhl.errors import SpecError
from ivhl.machine.system import System
from ivhl.records.bounds import MACHINE_NAME, SHORT_SIGNS
from ivhl.records.record import Machine
from ivhl.records.text import printable

# As a name: the processor, so that hosted runners that are alike are one machine.
BY_PROCESSOR = "by-processor"


def this_machine(name: str | None = None) -> Machine:
    """Return a description of this machine.

    Args:
        name: Its name in the results, by default the host name; ``by-processor`` makes one of the
            processor and its CPUs.

    Raises:
        SpecError: If the name cannot be a folder name.
    """
    cpu = cpu_model(System().text("proc/cpuinfo") or "") or os.uname().machine
    cpu = printable(cpu)[:SHORT_SIGNS]  # as a record may have it
    name = os.uname().nodename if name is None else name
    return Machine(
        name=name_by(cpu, os.cpu_count() or 1) if name == BY_PROCESSOR else checked_name(name),
        cpu=cpu,
        n_cpus=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        system=f"{os.uname().sysname} {os.uname().machine}",
    )


def name_by(cpu: str, n_cpus: int) -> str:
    """Return a machine name made of its processor, e.g. ``amd-epyc-7763-64-core-processor-x4``."""
    words = re.findall(r"[a-z0-9.]+", re.sub(r"\((?:r|tm|c)\)|@.*", " ", cpu.lower()))
    return f"{'-'.join(words)[:80].strip('-.') or 'processor'}-x{n_cpus}"


def cpu_model(cpuinfo: str) -> str:
    """Return the CPU's name from the text of ``/proc/cpuinfo``; empty if it has none."""
    lines = (line for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(lines, "").partition(":")[2].strip()


def checked_name(name: str) -> str:
    """Return a machine's name if it can be a folder name.

    Raises:
        SpecError: If it cannot.
    """
    if mistake := MACHINE_NAME.mistake(name):
        raise SpecError(
            f"machine name {name!r}: {mistake}",
            hint="it becomes a folder name; choose another one with --machine",
        )
    return name
