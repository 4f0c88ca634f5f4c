"""Describe a machine for asv, and compare it with the stored machine of the same name."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.machine import MachineCollection

from ivhl.errors import ResultsError, counted
from ivhl.machine.observation import Observation
from ivhl.records.files import replaced_whole
from ivhl.tracker.store.kept import read_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ivhl.records.record import Machine

# Fields that identify a machine. Memory can change in a virtual machine, so it is not one of them.
_IDENTITY = ("cpu", "num_cpu", "arch", "os")


def asv_machine(machine: Machine) -> dict[str, str]:
    """Return asv's entry for a machine.

    Every field becomes a parameter of asv's graphs. So the version of the kernel is left out, and
    memory is rounded: otherwise an update would begin new graphs.
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
    """Return the stored entry of a machine; empty if it is new.

    An unreadable file counts as missing here; ``ivhl publish`` reports it.
    """
    return read_object(results / name / "machine.json")


def machine_differences(known: Mapping[str, Any], machine: Machine) -> list[str]:
    """Return the differences between a machine and the stored one of its name; empty if none.

    Args:
        known: Stored entry, from ``known_machine`` or ``asv_machine``.
        machine: Machine that uses the name now.
    """
    here = asv_machine(machine)
    return [
        f"{what} {known[what]!r} there, {here[what]!r} here"
        for what in _IDENTITY
        if what in known and known[what] != here[what]
    ]


def save_machine(machine: Machine) -> None:
    """Store this machine in asv's file of machines; otherwise asv would prompt for it.

    Checkouts share the file, so runs may begin at once: asv's own way to save loses an entry then,
    or reads half a file.

    Raises:
        ResultsError: If the file cannot be written.
    """
    path = _machine_file()
    try:
        home = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ResultsError(
            f"{path.parent}, where asv keeps {path.name}, cannot be opened: {error.strerror}",
            hint="set HOME to a folder of yours",
        ) from error
    try:
        with suppress(OSError):  # a network file system without locks
            fcntl.flock(home, fcntl.LOCK_EX)
        with replaced_whole(path) as unfinished:
            if path.is_file():
                shutil.copyfile(path, unfinished)
            MachineCollection.save(machine.name, asv_machine(machine), _path=str(unfinished))
    finally:
        os.close(home)


def observe_machine_file() -> Observation:
    """Return an observation about asv's file of machines, in which each one has an entry."""
    path = _machine_file()
    if not path.exists():
        return Observation("asv machine file", "ok", "none yet; ivhl bench writes it")
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
        if there["version"] != 1:
            raise ValueError(f"version {there['version']}")  # noqa: TRY301  (reported below, with the others)
    except (OSError, ValueError, TypeError, KeyError) as error:
        seen = f"{path} cannot be read: {type(error).__name__}: {error}"
        hint = f"rm {path}; ivhl bench writes it again"
        return Observation("asv machine file", "wrong", seen, hint)
    return Observation("asv machine file", "ok", f"{path}, {counted(len(there) - 1, 'name')}")


def _machine_file() -> Path:
    return Path(MachineCollection.get_machine_file_path())
