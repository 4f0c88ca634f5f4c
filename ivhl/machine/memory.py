"""Read how much memory a case may use; check that cases fit and that nothing is swapped out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ivhl.machine.observation import Found, Observation
from ivhl.machine.system import System

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ivhl.workload import Case

GIB = 2**30
# Memory of a case besides its data. With torch 2.15.0 a process that compiles used up to 0.8 GiB and
# its compiler 0.7 GiB; the process from which cases are forked adds to that.
PROCESS_BYTES = 2 * GIB
# Fraction of the memory that a case may use by default.
_SHARE = 0.9
_UNREAD: Found = ("warning", "not reported: /proc/meminfo cannot be read", "")


def memory_limit(system: System | None = None) -> int:
    """Return the default memory limit of a case in bytes: 90 % of what this process may use.

    Args:
        system: Gives access to ``/proc`` and ``/sys``.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(_SHARE * min([total, *cgroup_limits(system or System())]))


def cgroup_limits(system: System) -> list[int]:
    """Return the memory limits of this process's control groups, in bytes.

    Version 1 reports a limit above any machine's memory where none is set.
    """
    names = system.cgroup_files("memory", "memory.max")
    names += system.cgroup_files("memory", "memory.limit_in_bytes")
    return [limit for name in names if (limit := system.number(name)) is not None and limit > 0]


def oom_kills() -> int:
    """Return how many processes Linux has killed so far because memory ran out."""
    count = System().table("proc/vmstat").get("oom_kill", "")
    return int(count) if count.isdecimal() else 0


def observe_memory(system: System, cases: Sequence[Case]) -> Iterator[Observation]:
    """Yield observations about memory, its limits and swap.

    Args:
        system: Gives access to ``/proc`` and ``/sys``.
        cases: Cases of the run on the CPU.
    """
    yield Observation("memory", *_memory(system, cases))
    yield Observation("swap", *_swap(system))


def _sizes(system: System, total: str, free: str) -> tuple[int, int] | None:
    """Return two sizes of ``/proc/meminfo`` in bytes; ``None`` if it lacks one."""
    found = (system.kilobytes("proc/meminfo", total), system.kilobytes("proc/meminfo", free))
    return None if None in found else found  # type: ignore[return-value]


def _memory(system: System, cases: Sequence[Case]) -> Found:
    if (sizes := _sizes(system, "MemTotal", "MemAvailable")) is None:
        return _UNREAD
    total, free = sizes
    allowed = min([total, *cgroup_limits(system)])
    seen = f"{free / GIB:.1f} of {total / GIB:.1f} GiB available"
    if allowed < total:
        seen += f", limited to {allowed / GIB:.1f} GiB"
    needs = {case.name: case.cost.memory for case in cases if case.cost is not None}
    largest = max(needs, key=lambda name: needs[name], default=None)
    need = PROCESS_BYTES + (needs[largest] if largest else 0)
    seen += f"; {largest or 'a case'} needs {need / GIB:.1f}"
    if need > _SHARE * allowed:
        return "wrong", seen, "raise the limit, measure a smaller --size, or use another machine"
    if need > min(free, allowed):
        return "warning", seen, "end what uses the memory (see top)"
    return "ok", seen, ""


def _swap(system: System) -> Found:
    if (sizes := _sizes(system, "SwapTotal", "SwapFree")) is None:
        return _UNREAD
    total, free = sizes
    if not total:
        return "ok", "none", ""
    used = max(0, total - free)
    seen = f"{used / GIB:.1f} of {total / GIB:.1f} GiB used"
    if not used:
        return "ok", seen, ""
    hint = "sudo swapoff --all: a swapped page is read from disk while the code is timed"
    return "warning", seen, hint
