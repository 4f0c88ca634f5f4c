"""Check that the largest case fits in memory, and that no memory is swapped out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.measure.finding import GIB, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ivhl.measure.finding import System
    from ivhl.workload import Case

# Memory of a case besides its data. With torch 2.15.0 a process that compiles used up to 0.8 GiB and
# its compiler 0.7 GiB; the process from which cases are forked adds to that.
PROCESS_BYTES = 2 * GIB


def look_at_memory(system: System, cases: Sequence[Case]) -> Iterator[Finding]:
    """Yield findings about memory, its limits and swap.

    Args:
        system: Gives access to ``/proc`` and ``/sys``.
        cases: Cases of the run on the CPU.
    """
    yield _memory(system, cases)
    yield _swap(system)


def memory_limits(system: System) -> list[int]:
    """Return the memory limits of this process's control groups, in bytes."""
    names = system.cgroup_files("memory", "memory.max")
    names += system.cgroup_files("memory", "memory.limit_in_bytes")
    return [limit for name in names if (limit := system.number(name)) is not None and limit > 0]


def _memory(system: System, cases: Sequence[Case]) -> Finding:
    total = system.kilobytes("proc/meminfo", "MemTotal")
    free = system.kilobytes("proc/meminfo", "MemAvailable")
    if total is None or free is None:
        return Finding("memory", "warning", "not told: /proc/meminfo cannot be read")
    # cgroup version 1 reports a huge number if there is no limit.
    limit = min([n for n in memory_limits(system) if n < total], default=None)
    allowed = total if limit is None else limit
    seen = f"{free / GIB:.1f} of {total / GIB:.1f} GiB available"
    if limit is not None:
        seen += f", limited to {limit / GIB:.1f} GiB"
    needs = {case.name: case.cost.memory for case in cases if case.cost is not None}
    largest = max(needs, key=lambda name: needs[name], default=None)
    need = PROCESS_BYTES + (needs[largest] if largest else 0)
    seen += f"; {largest or 'a case'} needs {need / GIB:.1f}"
    if need > 0.9 * allowed:  # as ivhl.measure.process.memory_limit
        hint = "raise the limit, take a smaller --size, or another machine"
        return Finding("memory", "wrong", seen, hint)
    if need > min(free, allowed):
        return Finding("memory", "warning", seen, "see what holds memory (top), and end it")
    return Finding("memory", "ok", seen)


def _swap(system: System) -> Finding:
    total = system.kilobytes("proc/meminfo", "SwapTotal")
    free = system.kilobytes("proc/meminfo", "SwapFree")
    if total is None or free is None:
        return Finding("swap", "warning", "not told: /proc/meminfo cannot be read")
    if not total:
        return Finding("swap", "ok", "none")
    used = max(0, total - free)
    seen = f"{used / GIB:.1f} of {total / GIB:.1f} GiB used"
    if not used:
        return Finding("swap", "ok", seen)
    hint = "sudo swapoff --all: reading a page from disk is timed with the code"
    return Finding("swap", "warning", seen, hint)
