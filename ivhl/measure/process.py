"""Run one process group under a time limit and a memory limit, and return how it ended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from ivhl.measure.clocks import living_descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

POLL_S = 0.05
# Limit for importing torch from a cold disk and compiling into an empty cache on a busy machine.
START_S = 300.0
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a process group ended.

    Attributes:
        how: ``exit`` with the exit status in ``code``; ``signal`` with its number in ``code``;
            ``deadline`` or ``memory`` if the harness killed it at that limit.
        peak_bytes: Largest resident memory of the group seen while polling.
    """

    how: Literal["exit", "signal", "deadline", "memory"]
    code: int
    seconds: float
    peak_bytes: int

    @property
    def signal_name(self) -> str:
        """Return e.g. ``SIGSEGV``, or ``signal N`` if it has no name."""
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
    """Run a command in its own process group; kill what is left of the group before returning.

    Inductor starts worker processes that survive a crashed parent and would disturb the timing of
    the next case. Output goes to a file, because such a worker would keep a pipe open.

    Args:
        command: Program and arguments.
        environment: The whole environment.
        output: File that gets stdout and stderr.
        deadline_s: Wall seconds after which the group is killed.
        memory_limit: Bytes of memory of the group, shared pages once, above which it is killed.
    """
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(seconds: float) -> int | None:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill() -> int:
        # A process of another group or session is its descendant as long as it lives.
        left = living_descendants(process.pid)
        kill_group(process.pid)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return process.wait()

    return watch(process.pid, wait, kill, deadline_s=deadline_s, memory_limit=memory_limit)


def watch(
    group: int,
    wait: Callable[[float], int | None],
    kill: Callable[[], int],
    *,
    deadline_s: float,
    memory_limit: int,
) -> Ending:
    """Wait for the leader of a group; kill the group when it exceeds a limit.

    Args:
        group: Number of the process group.
        wait: Waits some seconds; returns the leader's status as ``Popen.returncode``, or ``None``.
        kill: Kills what is left of the group, and returns the leader's status.
        deadline_s: Wall seconds after which the group is killed.
        memory_limit: Bytes of memory of the group, shared pages once, above which it is killed.
    """
    began = time.monotonic()
    peak = 0
    killed: Literal["deadline", "memory"] | None = None
    try:
        while wait(POLL_S) is None:
            held = resident_bytes(group)
            if held > memory_limit:  # counts pages shared by forked workers several times
                held = proportional_bytes(group)
            peak = max(peak, held)
            if time.monotonic() - began > deadline_s:
                killed = "deadline"
            elif peak > memory_limit:
                killed = "memory"
            if killed:
                break
    finally:
        code = kill()
    seconds = time.monotonic() - began
    if killed:
        return Ending(how=killed, code=0, seconds=seconds, peak_bytes=peak)
    if code < 0:
        return Ending(how="signal", code=-code, seconds=seconds, peak_bytes=peak)
    return Ending(how="exit", code=code, seconds=seconds, peak_bytes=peak)


def die_with(parent: int) -> None:
    """Have Linux kill this process when its parent dies; nothing else would end it then."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before prctl
        sys.exit(1)


def kill_group(group: int) -> None:
    """Kill all processes left in the group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class NurseryError(Exception):
    """The nursery does not answer: it died, or was killed."""


class Nursery:
    """The parent's handle of an ``ivhl.measure.nursery`` process. Any thread may ``close`` it.

    Args:
        environment: The whole environment in which it imports.
        output: File that gets its stderr.
        device: Device of the cases, ``cpu`` or ``cuda``.
    """

    def __init__(
        self, *, environment: Mapping[str, str], output: Path, device: str = "cpu"
    ) -> None:
        with output.open("wb") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ivhl.measure.nursery", str(os.getpid()), device],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                start_new_session=True,
            )
        self._pending = b""
        self._closing = threading.Lock()
        self._reading = threading.Lock()

    def wait(self) -> None:
        """Wait until the nursery can fork.

        Raises:
            NurseryError: If it cannot, or is closed meanwhile.
        """
        threads = self._answer("threads", START_S)
        if threads != 1:  # a fork would never release the locks that other threads hold
            raise NurseryError(f"it has {threads} threads" if threads else "CUDA is in use")

    @property
    def pid(self) -> int:
        """Process id of the nursery, the parent of its forks."""
        return self._process.pid

    def run(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        output: Path,
        deadline_s: float,
        memory_limit: int,
    ) -> Ending:
        """Run a case in a forked process, as ``run_group`` runs a command.

        Args:
            arguments: Arguments of ``ivhl.measure.case``, with its name first.
            environment: The whole environment.
            output: File that gets stdout and stderr.
            deadline_s: Wall seconds after which the group is killed.
            memory_limit: Bytes of memory of the group, shared pages once, above which it is killed.

        Raises:
            NurseryError: If the nursery died; its child died with it.
        """
        order = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "output": str(output),
        }
        assert self._process.stdin is not None  # noqa: S101  (for the type checker)
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:  # it died, or was closed
            raise NurseryError("it does not accept orders") from error
        group = self._answer("pid", START_S)

        def kill() -> int:
            kill_group(group)
            return self._answer("status", START_S) if status is None else status

        status: int | None = None

        def wait(seconds: float) -> int | None:
            nonlocal status
            with contextlib.suppress(TimeoutError):
                status = self._answer("status", seconds, patient=True)
            return status

        return watch(group, wait, kill, deadline_s=deadline_s, memory_limit=memory_limit)

    def close(self) -> None:
        """End the nursery; threads that wait for it get a ``NurseryError``."""
        with self._closing:
            if self._process.returncode is None:
                kill_group(self._process.pid)
                self._process.wait()
        # A thread that waits for an answer sees the end of the pipe and releases the lock.
        with self._reading:
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):  # flushing an order that was not read
                    pipe.close()  # type: ignore[union-attr]

    def _answer(self, name: str, seconds: float, *, patient: bool = False) -> int:
        """Return the next answer, which must have this name.

        Raises:
            NurseryError: If the nursery died, or does not answer in time.
            TimeoutError: If ``patient`` and it does not answer in time.
        """
        assert self._process.stdout is not None  # noqa: S101  (for the type checker)
        with self._reading:
            if self._process.stdout.closed:
                raise NurseryError("it is closed")
            pipe = self._process.stdout.fileno()
            ends = time.monotonic() + seconds
            while b"\n" not in self._pending:
                ready, _, _ = select.select([pipe], [], [], max(0.0, ends - time.monotonic()))
                if not ready and patient:
                    raise TimeoutError
                if not ready or not (data := os.read(pipe, 4096)):
                    raise NurseryError(f"it does not answer with its {name}")
                self._pending += data
            line, _, self._pending = self._pending.partition(b"\n")
        return int(json.loads(line)[name])


def resident_bytes(group: int) -> int:
    """Return the summed resident memory of the group; 0 without ``/proc``."""
    total = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if os.getpgid(int(entry.name)) == group:
                total += int((entry / "statm").read_text().split()[1]) * PAGE
    return total


def proportional_bytes(group: int) -> int:
    """Return the group's memory with shared pages counted once, else ``resident_bytes``.

    The kernel walks the page tables for it, which is too slow for every poll.
    """
    total = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if os.getpgid(int(entry.name)) == group:
                text = (entry / "smaps_rollup").read_text(encoding="ascii")
                total += int(text.split("\nPss:")[1].split()[0]) * 1024
    return total or resident_bytes(group)


def tail(path: Path, limit: int = 4000) -> str:
    """Return the end of a text file, with invalid UTF-8 replaced; empty if it is no plain file."""
    with contextlib.suppress(OSError), open_plain(path) as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - limit))
        return file.read(limit).decode("utf-8", "replace").strip()
    return ""


def beginning(path: Path, limit: int) -> bytes:
    """Return up to so many bytes of a file; none if it is missing, or no plain file."""
    with contextlib.suppress(OSError), open_plain(path) as file:
        return file.read(limit)
    return b""


def open_plain(path: Path) -> BinaryIO:
    """Open a file that the code under test can replace: a pipe would block, a device never end.

    Raises:
        OSError: If it cannot be opened, or is a link, a pipe or a device.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "must be a plain file", str(path))
    return file
