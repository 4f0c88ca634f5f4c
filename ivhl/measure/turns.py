"""Interleave the processes of a case: they prepare in parallel and time one at a time.

Half of the work of such a process is not timing: inputs, reference, loading compiled code, judging.
That runs on all cores. A process that wants to time waits until every other one waits as well or
has ended; then it is alone on the machine.
"""

from __future__ import annotations

import fcntl
import os


class Turns:
    """A file lock: shared by processes that prepare, exclusive for the one that times.

    The next process to time holds a second lock, and no process takes the first one before it.
    Otherwise the process that has just timed would share the first lock again at once and keep the
    other one waiting. The kernel releases both locks when a process ends, even if it crashes.

    Args:
        path: Path of the file; empty if no other process runs.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._files = (
            [os.open(f"{path}{end}", flags, 0o600) for end in ("", ".next")] if path else []
        )
        self.share()

    def take(self) -> None:
        """Wait until no other process of the case prepares or times."""
        if self._files:
            turn, following = self._files
            fcntl.flock(turn, fcntl.LOCK_UN)
            fcntl.flock(following, fcntl.LOCK_EX)
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(following, fcntl.LOCK_UN)

    def share(self) -> None:
        """Let the others continue, a process that waits to time first."""
        if self._files:
            turn, following = self._files
            fcntl.flock(turn, fcntl.LOCK_UN)
            fcntl.flock(following, fcntl.LOCK_EX)
            fcntl.flock(following, fcntl.LOCK_UN)
            fcntl.flock(turn, fcntl.LOCK_SH)
