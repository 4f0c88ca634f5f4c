"""Turns of the processes of a case: they get ready side by side, and are timed one by one.

Half of what such a process does is no timing: inputs, reference, loading compiled code, judging.
That is done on all cores. Who is about to time something waits until every other one has arrived at
the same or has ended, and then has the machine for itself.
"""

from __future__ import annotations

import fcntl
import os


class Turns:
    """A lock on a file, shared by all who get ready and held by the one who is timed.

    A second lock is held by the one who waits to be timed: nobody shares the first one before it,
    or who has just been timed would go on at once and keep the other one waiting. The kernel lets
    go of both when a process ends, in whatever way.

    Args:
        path: Of the file; empty where nobody else is there to wait for.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._files = (
            [os.open(f"{path}{end}", flags, 0o600) for end in ("", ".next")] if path else []
        )
        self.share()

    def take(self) -> None:
        """Wait until the machine is ours, as far as the processes of the case are concerned."""
        if self._files:
            turn, following = self._files
            fcntl.flock(turn, fcntl.LOCK_UN)
            fcntl.flock(following, fcntl.LOCK_EX)
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(following, fcntl.LOCK_UN)

    def share(self) -> None:
        """Let the others go on: first who waits to be timed."""
        if self._files:
            turn, following = self._files
            fcntl.flock(turn, fcntl.LOCK_UN)
            fcntl.flock(following, fcntl.LOCK_EX)
            fcntl.flock(following, fcntl.LOCK_UN)
            fcntl.flock(turn, fcntl.LOCK_SH)
