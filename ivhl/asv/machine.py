"""What asv is told about a machine, and whether a name is still the same machine's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from asv.machine import MachineCollection

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ivhl.records import Machine

# More or less memory in a virtual machine, or a new kernel, do not make another machine of it.
_IDENTITY = ("cpu", "num_cpu", "arch", "os")


def asv_machine(machine: Machine) -> dict[str, str]:
    """Return what asv is to know about a machine.

    Everything in here is a parameter of asv's graphs: a kernel update or a few megabytes less of
    memory would begin new graphs, so only what makes results incomparable is in it.
    """
    return {
        "machine": machine.name,
        "os": machine.system.split()[0],
        "arch": machine.system.split()[-1],
        "cpu": machine.cpu,
        "num_cpu": str(machine.n_cpus),
        "ram": f"{round(machine.memory_bytes / 2**30)} GiB",
    }


def known_machine(results: Path, name: str) -> dict[str, Any]:
    """Return what the results say about the machine of a name; nothing if it is new.

    A file that cannot be read counts as none: whoever publishes names it.
    """
    try:
        return dict(json.loads((results / name / "machine.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def machine_differences(known: Mapping[str, Any], machine: Machine) -> list[str]:
    """Return in what a machine is not the one that its name belongs to; empty if it is.

    Args:
        known: See ``known_machine`` and ``asv_machine``.
        machine: The one that is to have the name.
    """
    here = asv_machine(machine)
    return [
        f"{what} {known[what]!r} there, {here[what]!r} here"
        for what in _IDENTITY
        if what in known and known[what] != here[what]
    ]


def save_machine(machine: Machine) -> None:
    """Store this machine where asv looks for it, so that asv does not ask."""
    MachineCollection.save(machine.name, asv_machine(machine))
