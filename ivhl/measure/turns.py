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

    The kernel lets go of it when a process ends, in whatever way.

    Args:
        path: Of the file, which exists; empty where nobody else is there to wait for.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC) if path else None
        self.share()

    def take(self) -> None:
        """Wait until the machine is ours, as far as the processes of the case are concerned."""
        self._change(fcntl.LOCK_EX)

    def share(self) -> None:
        """Let the others go on."""
        self._change(fcntl.LOCK_SH)

    def _change(self, kind: int) -> None:
        if self._file is not None:
            # First of all: a change of kind keeps the old one while it waits, as the other one does.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            fcntl.flock(self._file, kind)
