"""Run a command, and end everything that it started when it ends, or when its caller does.

``python -I -S supervisor.py LIFELINE ISOLATE COMMAND...``, started by
``ivhl.measure.process.ProcessTree``, which holds the other end of the pipe ``LIFELINE``: the kernel
closes it when that process dies. This file runs by itself, since the command may have another
Python, path and folder.

Where Linux allows it, the command runs in a PID namespace of its own, with its own ``/proc``. The
first process of a namespace cannot be stopped or killed from inside, and when it ends, the kernel
kills all others at once. Elsewhere orphans become children of the supervisor, which kills them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
# First process id in a namespace: below the smallest limit that Linux has for them.
FIRST_PIDS = range(1000, 31000)


def main(argv: Sequence[str]) -> NoReturn:
    """Run the command, and end as it did."""
    lifeline, isolate, command = int(argv[1]), argv[2] == "1", argv[3:]
    os.set_inheritable(lifeline, False)  # noqa: FBT003  (it has no other form)
    if isolate and _in_a_fork(lambda: _new_pids() and _in_a_fork(_own_proc)):
        status = _run_isolated(command, lifeline)
    else:
        status = supervise(command, lifeline)
        end_descendants()
    if status < 0:  # end by the same signal, without a second core dump
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def supervise(command: Sequence[str], lifeline: int) -> int:
    """Run a command until it ends or the lifeline does; return its status as ``Popen.returncode``.

    A command that its own children stop (SIGSTOP) continues at once. SIGINT is passed on.
    """
    caller = os.getppid()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    adopt_orphans()
    try:
        process = subprocess.Popen(
            command,
            process_group=0,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (one thread)
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    signal.signal(signal.SIGINT, lambda *_: kill_group(process.pid, signal.SIGINT))
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    poll.register(lifeline, 0)  # only its end is reported
    ends = {lifeline, *_end_of_caller(caller)}
    for number in ends - {lifeline}:
        poll.register(number, select.POLLIN)
    while process.returncode is None:
        if any(number in ends for number, _ in poll.poll()):
            process.returncode = -signal.SIGKILL
        else:
            os.read(woken, 4096)
            _reap(process)
    kill_group(process.pid)
    return process.returncode


def _end_of_caller(caller: int) -> list[int]:
    """Return a descriptor that tells the end of the caller, where Linux has them.

    Without a namespace, code of the same user can keep the lifeline open through ``/proc``.
    """
    with contextlib.suppress(AttributeError, OSError):  # another system, or another namespace
        descriptor = os.pidfd_open(caller)
        if os.getppid() == caller:
            return [descriptor]
    return []


def _reap(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
            pid, status = ended
            if pid != process.pid:
                continue
            if os.WIFSTOPPED(status):
                os.kill(pid, signal.SIGCONT)
            else:
                process.returncode = os.waitstatus_to_exitcode(status)


def _run_isolated(command: Sequence[str], lifeline: int) -> int:
    """Supervise the command from the first process of a new PID namespace."""
    told, tell = os.pipe()
    _new_pids()
    first = os.fork()
    if first == 0:
        os.close(told)
        die_with_parent()
        _own_proc()
        os.write(tell, b"%d" % supervise(command, lifeline))
        os._exit(0)
    os.close(tell)
    signal.signal(signal.SIGINT, lambda *_: os.kill(first, signal.SIGINT))
    status = os.read(told, 8)
    os.waitpid(first, 0)  # returns when no process of the namespace is left
    return int(status or -signal.SIGKILL)


def _new_pids() -> bool:
    """Let the next child of this process begin a PID namespace; return whether that is allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        return False
    if libc.unshare(CLONE_NEWPID) == 0:
        return True
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWPID):
        return False
    # The same numbers as outside, so that files belong to the same user.
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(text)
    return True


def _own_proc() -> bool:
    """Mount the ``/proc`` of this process's PID namespace, for this namespace alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.unshare(CLONE_NEWNS)
        or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        or libc.mount(b"proc", b"/proc", b"proc", 0, None)
    ):
        return False
    # Programs name temporary files by their process id: concurrent namespaces need different ones.
    start = FIRST_PIDS[int.from_bytes(os.urandom(4), "big") % len(FIRST_PIDS)]
    with (
        contextlib.suppress(OSError),
        open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file,  # noqa: PTH123
    ):
        file.write(str(start))
    return True


def _in_a_fork(attempt: Callable[[], bool]) -> bool:
    """Return whether an attempt succeeds in a child, so that this process stays as it is."""
    pid = os.fork()
    if pid == 0:
        allowed = False
        with contextlib.suppress(OSError):
            allowed = attempt()
        os._exit(not allowed)
    return os.waitpid(pid, 0)[1] == 0


def die_with_parent() -> None:
    """Have Linux kill this process when the thread that forked it ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants: their CPU time counts, and they end."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def kill_group(group: int, how: int = signal.SIGKILL) -> None:
    """Send a signal to all processes of a group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, how)


def living_descendants(of: int | None = None, others: set[int] | None = None) -> tuple[int, ...]:
    """Return the process ids of all descendants, sorted; empty without ``/proc``.

    Args:
        of: Process id; ``None`` means this process.
        others: Processes that are known to be none, and are not read again. Those that are found to
            be none are added: where orphans are adopted, no process joins its descendants later.
    """
    root = os.getpid() if of is None else of
    known = set() if others is None else others
    parents: dict[int, int] = {}
    names = os.listdir("/proc") if os.path.isdir("/proc") else []  # noqa: PTH112, PTH208  (quicker)
    for pid in {int(name) for name in names if name.isdecimal()} - known:
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[pid] = int(_stat(pid)[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    known |= parents.keys() - found
    return tuple(sorted(found - {root}))


def children() -> list[int]:
    """Return the living children of this process; empty without ``/proc``."""
    found = []
    for pid in living_descendants():
        with contextlib.suppress(OSError):
            if int(_stat(pid)[1]) == os.getpid():
                found.append(pid)
    return found


def end_descendants(of: int | None = None) -> None:
    """Kill all descendants, including orphans that have been adopted.

    They are stopped first: a process that starts another one for each that ends cannot go on. A
    process that starts another one and ends may be missed between the list of processes and a look
    at each; the kernel knows whether this process, which adopts orphans, has children left.

    Args:
        of: Process id; ``None`` means this process.
    """
    while True:
        left = [pid for pid in living_descendants(of) if not _is_gone(pid)]
        if not left and (of is not None or not _has_children()):
            return
        send(left, signal.SIGSTOP)
        send(left, signal.SIGKILL)


def _has_children() -> bool:
    """Return whether this process has living children; ``False`` without ``/proc``."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return sys.platform == "linux"
    return False


def end_tree(root: int) -> None:
    """Kill a process and its descendants, and reap it if it is a child of this one."""
    end_descendants(root)
    send([root], signal.SIGKILL)
    _is_gone(root)


def send(pids: Iterable[int], how: int) -> None:
    """Send a signal to processes; those that have ended are passed over."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, how)


def _is_gone(pid: int) -> bool:
    """Return whether a process has ended; reaps it if it is a child of this one."""
    with contextlib.suppress(OSError):
        os.waitpid(pid, os.WNOHANG)
    with contextlib.suppress(OSError):
        return _stat(pid)[0] == "Z"
    return True


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes and of their children that ended; 0 without ``/proc``."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            ticks += sum(map(int, _stat(pid)[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """Return the state, the parent and more of a process."""
    # "pid (name) state ppid"; the name may contain spaces and parentheses.
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123  (quicker)
        return file.read(4096).decode("utf-8", "replace").rpartition(")")[2].split()


if __name__ == "__main__":
    main(sys.argv)
