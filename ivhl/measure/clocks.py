"""Read elapsed time and CPU time, including the CPU time of descendant processes.

CPU time of this process alone misses the work of a child process. Elapsed time includes other load
on the machine. Both are kept, and ``ivhl.measure.intervals.clocks_disagree`` compares them.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from dataclasses import dataclass

# Imported by name and first, so that no later import can replace them.
from time import clock_gettime_ns, perf_counter_ns, process_time_ns, thread_time_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

CPUCLOCK_SCHED = 2


@dataclass(frozen=True, slots=True)
class Stretch:
    """The readings of all clocks, or the differences of two readings, in nanoseconds.

    Attributes:
        wall: Elapsed time.
        process: CPU time of all threads of this process.
        thread: CPU time of the calling thread.
        children: CPU time of the given descendants, and of all that have ended.
    """

    wall: int
    process: int
    thread: int
    children: int

    @property
    def cpu(self) -> int:
        """CPU time of this process and its descendants."""
        return self.process + self.children


def begin(descendants: Iterable[int] = ()) -> Stretch:
    """Read all clocks, elapsed time last: the timed work begins right after it."""
    children = children_ns(descendants)
    thread = thread_time_ns()
    process = process_time_ns()
    return Stretch(perf_counter_ns(), process, thread, children)


def since(began: Stretch, descendants: Iterable[int] = ()) -> Stretch:
    """Return the time since ``began``; reads the clocks in the opposite order."""
    wall = perf_counter_ns()
    process = process_time_ns()
    thread = thread_time_ns()
    return Stretch(
        wall=wall - began.wall,
        process=process - began.process,
        thread=thread - began.thread,
        children=children_ns(descendants) - began.children,
    )


def children_ns(descendants: Iterable[int] = ()) -> int:
    """Return the CPU time in ns of these processes and of all descendants that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = round((ended.ru_utime + ended.ru_stime) * 1e9)
    for pid in descendants:
        with suppress(OSError):  # ended: RUSAGE_CHILDREN counts it once it has been waited for
            total += clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)
    return total
