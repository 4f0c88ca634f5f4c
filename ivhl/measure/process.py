"""Run trees of processes under a time limit and a memory limit, and return how they ended."""

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
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal, Self

from ivhl.measure import supervisor
from ivhl.measure.supervisor import (
    adopt_orphans,
    children,
    cpu_seconds,
    end_descendants,
    end_tree,
    living_descendants,
    send,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

POLL_S = 0.05
# Limit for importing torch from a cold disk and compiling into an empty cache on a busy machine.
START_S = 300.0
# Limit for the kernel to end what was killed: it frees hundreds of GiB in that time.
GRACE_S = 30.0
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a process ended.

    Attributes:
        how: ``exit`` with the exit status in ``code``; ``signal`` with its number in ``code``;
            ``deadline`` or ``memory`` if the harness killed it at that limit.
        peak_bytes: Largest resident memory, with what it started, seen while polling.
        cpu_s: CPU seconds, with what it started, of a process that the harness killed.
    """

    how: Literal["exit", "signal", "deadline", "memory"]
    code: int
    seconds: float
    peak_bytes: int
    cpu_s: float = 0.0

    @property
    def signal_name(self) -> str:
        """Return e.g. ``SIGSEGV``, or ``signal N`` if it has no name."""
        try:
            return signal.Signals(self.code).name
        except ValueError:
            return f"signal {self.code}"


class ProcessTree:
    """A command and everything that it starts, whatever group or session that chooses.

    All of it ends when the command does, in ``end``, and when this process dies. It inherits the
    standard streams alone; the supervisor keeps locks of this process until all has ended.

    Args:
        command: Program and arguments.
        isolated: Whether it gets a PID namespace, where Linux allows that. Not for what looks at
            processes of others (``nvidia-smi``). ``IVHL_PID_NAMESPACE=0`` forbids it.
        options: Of ``subprocess.Popen``.
    """

    _starting = threading.Lock()
    _supervisors: ClassVar[set[int]] = set()

    def __init__(
        self,
        command: Sequence[str],
        *,
        isolated: bool = True,
        **options: Any,  # noqa: ANN401  (those of Popen)
    ) -> None:
        adopt_orphans()  # of a supervisor that the command kills
        isolated = isolated and os.environ.get("IVHL_PID_NAMESPACE") != "0"
        lifeline, self._lifeline = os.pipe()
        os.set_inheritable(lifeline, True)  # noqa: FBT003  (it has no other form)
        words = [
            sys.executable,
            "-I",
            "-S",
            supervisor.__file__,
            str(lifeline),
            str(int(isolated)),
        ]
        try:
            with self._starting:
                self.process = subprocess.Popen(
                    [*words, *command], close_fds=False, start_new_session=True, **options
                )
                self._supervisors.add(self.process.pid)
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(lifeline)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes, and close the pipes to them."""
        self.end()
        for pipe in filter(None, (self.process.stdin, self.process.stdout, self.process.stderr)):
            pipe.close()

    def resume(self) -> None:
        """Let the supervisor continue: without a namespace, the command can have stopped it."""
        if self.process.returncode is None:
            send([self.process.pid], signal.SIGCONT)

    def wait(self, seconds: float) -> int | None:
        """Return the command's status as ``Popen.returncode``; ``None`` if it still runs."""
        self.resume()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(seconds)
        return None

    def end(self) -> int:
        """End all processes, and return the command's status."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self.wait(GRACE_S) is None:
            end_descendants(self.process.pid)
            self.process.kill()
        status = self.process.wait()
        with self._starting:
            self._supervisors.discard(self.process.pid)
            while status == -signal.SIGKILL and (left := self._strays()):
                for pid in left:
                    end_tree(pid)
        return status

    def _strays(self) -> list[int]:
        """Return children that were adopted from a supervisor that was killed.

        They have another session than this process, and are no supervisors.
        """
        found = []
        for pid in set(children()) - self._supervisors:
            with contextlib.suppress(OSError):
                if os.getsid(pid) != os.getsid(0):
                    found.append(pid)
        return found


def run_tree(
    command: Sequence[str],
    *,
    timeout: float | None = None,
    isolated: bool = True,
    **options: Any,  # noqa: ANN401  (those of Popen)
) -> subprocess.CompletedProcess[str]:
    """Run a command as ``subprocess.run`` does, and end everything that it started.

    Raises:
        subprocess.TimeoutExpired: After ``timeout`` seconds.
    """
    options = {"stdin": subprocess.DEVNULL, "text": True, "errors": "replace"} | options
    with ProcessTree(command, isolated=isolated, **options) as tree:
        output, error = tree.process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, tree.process.returncode, output, error)


def run_limited(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: Path,
    deadline_s: float,
    memory_limit: int,
    folder: Path | None = None,
) -> Ending:
    """Run a command under limits; nothing that it started is left when this returns.

    Output goes to a file, because a process that it leaves behind would keep a pipe open.

    Args:
        command: Program and arguments.
        environment: The whole environment.
        output: File that gets stdout and stderr.
        deadline_s: Wall seconds after which it is killed.
        memory_limit: Bytes of memory of its processes, shared pages once, above which it is killed.
        folder: Its current folder, if another one than this process has.
    """
    with (
        output.open("wb") as sink,
        ProcessTree(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=folder,
        ) as tree,
    ):
        return watch(tree, tree.wait, tree.end, deadline_s=deadline_s, memory_limit=memory_limit)


def watch(
    tree: ProcessTree,
    wait: Callable[[float], int | None],
    kill: Callable[[], object],
    *,
    deadline_s: float,
    memory_limit: int,
    own: Iterable[int] = (),
) -> Ending:
    """Wait for a process of a tree; kill it when it exceeds a limit.

    Args:
        tree: The tree.
        wait: Waits some seconds; returns the status as ``Popen.returncode``, or ``None``.
        kill: Kills the process and what it started.
        deadline_s: Wall seconds after which it is killed.
        memory_limit: Bytes of memory, shared pages once, above which it is killed.
        own: Processes of the tree whose memory does not count.
    """
    began = time.monotonic()
    peak, cpu_s = 0, 0.0
    others: set[int] = set()
    how: Literal["exit", "signal", "deadline", "memory"] = "exit"
    while (code := wait(POLL_S)) is None:
        pids = set(living_descendants(tree.process.pid, others)).difference(own)
        held = resident_bytes(pids)
        if held > memory_limit:  # counts pages shared by forked workers several times
            held = proportional_bytes(pids)
        peak = max(peak, held)
        if time.monotonic() - began > deadline_s:
            how = "deadline"
        elif peak > memory_limit:
            how = "memory"
        if how != "exit":
            cpu_s = cpu_seconds(pids)  # the kernel forgets those of a killed PID namespace
            kill()
            code = 0
            break
    if code < 0:
        how, code = "signal", -code
    seconds = time.monotonic() - began
    return Ending(how=how, code=code, seconds=seconds, peak_bytes=peak, cpu_s=cpu_s)


class NurseryError(Exception):
    """The nursery does not answer: it died, or was killed."""


class Nursery:
    """The parent's handle of an ``ivhl.measure.nursery`` process. Any thread may ``close`` it.

    Args:
        python: Python of the cell, with what it is run by.
        module: Its ``main`` runs a case.
        environment: The whole environment in which it imports.
        output: File that gets its stderr.
        device: Device of the cases, ``cpu`` or ``cuda``.
    """

    def __init__(
        self,
        python: Sequence[str] = (sys.executable,),
        module: str = "ivhl.measure.case",
        *,
        environment: Mapping[str, str],
        output: Path,
        device: str = "cpu",
    ) -> None:
        with output.open("wb") as sink:
            self.tree = ProcessTree(
                [*python, "-m", "ivhl.measure.nursery", device, module],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
            )
        self._orders, self._answers = self.tree.process.stdin, self.tree.process.stdout
        self._pending = b""
        self._own: tuple[int, ...] = ()
        self._closing = threading.Lock()
        self._reading = threading.Lock()
        self.is_closed = False

    def wait(self) -> None:
        """Wait until the nursery can fork.

        Raises:
            NurseryError: If it cannot, or is closed meanwhile.
        """
        threads = self._answer("threads", START_S)
        if threads != 1:  # a fork would never release the locks that other threads hold
            raise NurseryError(f"it has {threads} threads" if threads else "CUDA is in use")
        self._own = living_descendants(self.tree.process.pid)

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        output: Path,
        deadline_s: float,
        memory_limit: int,
        folder: Path | None = None,
    ) -> Ending:
        """Run a case in a forked process, as ``run_limited`` runs a command.

        Where the nursery does not report the end of a case that was killed, it is closed.

        Args:
            command: Arguments of the module, with its name first.
            environment: The whole environment.
            output: File that gets stdout and stderr.
            deadline_s: Wall seconds after which the case is killed.
            memory_limit: Bytes of memory of its processes, shared pages once, above which it is
                killed.
            folder: Its current folder, if another one than the nursery's.

        Raises:
            NurseryError: If the nursery died; the case died with it.
        """
        order = {
            "arguments": list(command),
            "environment": dict(environment),
            "output": str(output),
            "folder": str(folder or ""),
        }
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")  # type: ignore[union-attr]
            self._orders.flush()  # type: ignore[union-attr]
        except (OSError, ValueError) as error:  # it died, or was closed
            raise NurseryError("it does not accept orders") from error

        return watch(
            self.tree,
            self._status_after,
            self._kill,
            own=self._own,
            deadline_s=deadline_s,
            memory_limit=memory_limit,
        )

    def _status_after(self, seconds: float) -> int | None:
        """Return the status of the case; ``None`` if it still runs."""
        self.tree.resume()
        with contextlib.suppress(TimeoutError):
            return self._answer("status", seconds, patient=True)
        return None

    def _kill(self) -> None:
        # The nursery ends what these have left.
        left = set(living_descendants(self.tree.process.pid)) - set(self._own)
        send(left, signal.SIGKILL)
        try:
            self._answer("status", GRACE_S)
        except NurseryError:
            self.close()

    def close(self) -> None:
        """End the nursery; threads that wait for it get a ``NurseryError``."""
        with self._closing:
            self.is_closed = True
            self.tree.end()
        # A thread that waits for an answer sees the end of the pipe and releases the lock.
        with self._reading:
            for pipe in (self._orders, self._answers):
                with contextlib.suppress(OSError):  # flushing an order that was not read
                    pipe.close()  # type: ignore[union-attr]

    def _answer(self, name: str, seconds: float, *, patient: bool = False) -> int:
        """Return the next answer, which must have this name.

        Raises:
            NurseryError: If the nursery died, or does not answer in time.
            TimeoutError: If ``patient`` and it does not answer in time.
        """
        assert self._answers is not None  # noqa: S101  (for the type checker)
        with self._reading:
            if self._answers.closed:
                raise NurseryError("it is closed")
            pipe = self._answers.fileno()
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


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the summed resident memory of processes; 0 without ``/proc``."""
    return _total(pids, "statm", lambda text: int(text.split()[1]) * PAGE)


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the memory of processes with shared pages counted once, else ``resident_bytes``.

    The kernel walks the page tables for it, which is too slow for every poll.
    """
    pss = _total(pids, "smaps_rollup", lambda text: int(text.split("\nPss:")[1].split()[0]) * 1024)
    return pss or resident_bytes(pids)


def _total(pids: Iterable[int], file: str, bytes_in: Callable[[str], int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += bytes_in(Path(f"/proc/{pid}/{file}").read_text(encoding="ascii"))
    return total


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
