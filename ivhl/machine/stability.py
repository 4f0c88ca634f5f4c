"""Observe before a run how steady the machine is, for the records."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ivhl.machine.cpu import observe_cpu_speed
from ivhl.machine.gpu import observe_gpu_processes, observe_gpu_speed, query_gpus
from ivhl.machine.observation import Observation
from ivhl.machine.program import ProgramError
from ivhl.machine.system import System
from ivhl.records.record import RecordedObservation

if TYPE_CHECKING:
    from collections.abc import Iterator

# Longest text that ``ivhl import`` accepts (ivhl.fleet.check).
_LONGEST = 100


def observe_stability(
    device: str, system: System | None = None
) -> tuple[RecordedObservation, ...]:
    """Return the observations about stability that a record keeps. Raises nothing.

    Args:
        device: ``cpu`` or ``cuda``; GPUs are queried only for ``cuda``.
        system: Gives access to ``/proc`` and ``/sys``.
    """
    found: list[RecordedObservation] = []
    # An unreadable system must not stop a run; observations made before the error are kept.
    with suppress(Exception):
        found.extend(
            RecordedObservation(check=one.check, level=one.level, seen=one.seen[:_LONGEST])
            for one in _observe(device, system or System())
        )
    return tuple(found)


def _observe(device: str, system: System) -> Iterator[Observation]:
    yield from observe_cpu_speed(system)
    if device != "cuda":
        return
    try:
        gpus = query_gpus()
    except ProgramError:  # its message may contain paths, which records must not
        yield Observation("GPU", "warning", "not reported: nvidia-smi is missing or fails")
        return
    for gpu in gpus:
        yield from observe_gpu_speed(gpu)
    yield observe_gpu_processes()
