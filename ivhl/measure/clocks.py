"""Seconds of a stretch of work: elapsed, and of CPU, with every process that the work starts.

The CPU time of this process alone misses what a child process computes, and elapsed time alone
holds whatever else runs on the machine. Both are kept, so that a case in which they disagree is
noticed (``ivhl.measure.intervals.choose_clock``).
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# By name, before anything else is imported that could put another clock in their place.
from time import clock_gettime_ns, perf_counter_ns, process_time_ns, thread_time_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PR_SET_CHILD_SUBREAPER = 36
CPUCLOCK_SCHED = 2


@dataclass(frozen=True, slots=True)
class Stretch:
    """A point in time on every clock, or what passed between two, in nanoseconds.

    Attributes:
        wall: Elapsed time.
        process: CPU time of all threads of this process.
        thread: CPU time of the calling thread.
        children: CPU time of the descendants that were named, and of all that have ended.
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
    """Return this moment; what asking costs is before it."""
    children = children_ns(descendants)
    thread = thread_time_ns()
    process = process_time_ns()
    return Stretch(perf_counter_ns(), process, thread, children)


def since(began: Stretch, descendants: Iterable[int] = ()) -> Stretch:
    """Return what has passed since ``began``, with the clocks read in the opposite order."""
    wall = perf_counter_ns()
    process = process_time_ns()
    thread = thread_time_ns()
    return Stretch(
        wall=wall - began.wall,
        process=process - began.process,
        thread=thread - began.thread,
        children=children_ns(descendants) - began.children,
    )


def adopt_orphans() -> None:
    """Become the parent of every orphaned descendant, so that its CPU time is not lost."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  (only here, and only on Linux)

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def children_ns(descendants: Iterable[int] = ()) -> int:
    """Return the CPU nanoseconds of these processes and of all descendants that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = round((ended.ru_utime + ended.ru_stime) * 1e9)
    for pid in descendants:
        with suppress(OSError):  # ended: the line above has it, once it has been waited for
            total += clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)
    return total


def living_descendants() -> tuple[int, ...]:
    """Return the descendants of this process; none where there is no ``/proc``."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # "pid (name) state ppid", and a name may hold anything.
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return tuple(sorted(found - {os.getpid()}))


def end_descendants() -> None:
    """Kill every descendant that there still is; those of them that are orphans become ours."""
    while left := [pid for pid in living_descendants() if not _is_gone(pid)]:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _is_gone(pid: int) -> bool:
    """Say whether only the status of a process is left, and take it if it is that of a child."""
    with suppress(OSError):
        os.waitpid(pid, os.WNOHANG)
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[0] == "Z"
    return True
