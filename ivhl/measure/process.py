"""Run one process group under a deadline and a memory limit, and say how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POLL_S = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a process group ended.

    Attributes:
        how: ``exit`` with ``code``; ``signal`` with ``code`` the signal's number; or killed by us at
            the ``deadline`` or over the ``memory`` limit.
        peak_bytes: Largest resident memory of the group seen while polling.
    """

    how: Literal["exit", "signal", "deadline", "memory"]
    code: int
    seconds: float
    peak_bytes: int

    @property
    def signal_name(self) -> str:
        """Return e.g. ``SIGSEGV``, or the number where it has no name."""
        try:
            return signal.Signals(self.code).name
        except ValueError:
            return f"signal {self.code}"


def run_group(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: Path,
    deadline_s: float,
    memory_limit: int,
) -> Ending:
    """Run a command in a process group of its own; the whole group is gone when this returns.

    Inductor starts worker processes that outlive a crashed parent and would load the machine while
    the next case is timed. Output goes to a file, not a pipe, since such a worker would keep a pipe
    open for ever.

    Args:
        command: Program and arguments.
        environment: The whole environment.
        output: File that gets stdout and stderr.
        deadline_s: Wall seconds after which the group is killed.
        memory_limit: Bytes of memory of the group, shared pages once, above which it is killed.
    """
    began = time.monotonic()
    peak = 0
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        killed: Literal["deadline", "memory"] | None = None
        try:
            while True:
                try:
                    process.wait(POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    held = resident_bytes(process.pid)
                    if held > memory_limit:  # forked workers share pages: is it still too much?
                        held = proportional_bytes(process.pid)
                    peak = max(peak, held)
                    if time.monotonic() - began > deadline_s:
                        killed = "deadline"
                    elif peak > memory_limit:
                        killed = "memory"
                    if killed:
                        break
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = time.monotonic() - began
    code = process.returncode
    if killed:
        return Ending(how=killed, code=0, seconds=seconds, peak_bytes=peak)
    if code < 0:
        return Ending(how="signal", code=-code, seconds=seconds, peak_bytes=peak)
    return Ending(how="exit", code=code, seconds=seconds, peak_bytes=peak)


def resident_bytes(group: int) -> int:
    """Return the resident memory of every process in the group; 0 where there is no ``/proc``."""
    total = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if os.getpgid(int(entry.name)) == group:
                total += int((entry / "statm").read_text().split()[1]) * PAGE
    return total


def proportional_bytes(group: int) -> int:
    """Return the group's memory with shared pages counted once; as above where Linux cannot tell.

    The kernel walks the page tables for it, which is too slow to do at every poll.
    """
    total = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if os.getpgid(int(entry.name)) == group:
                text = (entry / "smaps_rollup").read_text(encoding="ascii")
                total += int(text.split("\nPss:")[1].split()[0]) * 1024
    return total or resident_bytes(group)


def total_bytes() -> int:
    """Return the memory of this machine, or of the container that this process is in."""
    total = os.sysconf("SC_PHYS_PAGES") * PAGE
    with contextlib.suppress(OSError, ValueError):  # "max", or no cgroup
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return total


def memory_limit() -> int:
    """Return the bytes that a case may hold where nobody says otherwise: 90 % of all."""
    return int(0.9 * total_bytes())


def tail(path: Path, limit: int = 4000) -> str:
    """Return the end of a text file; what is not UTF-8 is replaced."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - limit))
        return file.read().decode("utf-8", "replace").strip()
    return ""
