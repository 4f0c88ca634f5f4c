"""A worker of a fleet: claims a job, measures, hands the records in, until it is told to stop.

One process has one job at a time. Its heart beats in a thread with a connection of its own, also
while it drains.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ivhl.errors import IvhlError, ResultsError, SpecError
from ivhl.fleet.database import LEASE_S
from ivhl.fleet.queue import FleetQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ivhl.fleet.queue import Claimed, Need, ObserveJob

# Jobs between two controls of a machine.
_CONTROLLED_AFTER: Final = 25


class FleetWorker:
    """One worker.

    Args:
        address: Of the queue, as for ``FleetQueue``.
        needs: What this machine serves.
        measure: Returns what a job found in a try of this number, as a text.
        sign: Returns a signature of such a text, or ``None``.
        control: Repeats known records and returns where they differ; empty if they do not.
        busy: Returns why this machine can take no job now; empty if it can.
        places: A file for each job that this machine may do at a time.
        tell: Called with each line for the person who waits.
        lease_s: As for ``FleetQueue``.
        pause_s: Between two looks at an empty queue.
    """

    def __init__(
        self,
        address: str,
        needs: Sequence[Need],
        *,
        measure: Callable[[ObserveJob, int], str],
        sign: Callable[[str], str | None],
        control: Callable[[], str],
        busy: Callable[[], str],
        places: Sequence[Path],
        tell: Callable[[str], object],
        lease_s: float = LEASE_S,
        pause_s: float = 5.0,
    ) -> None:
        self._address, self._needs, self._places = address, needs, places
        self._measure, self._sign, self._control = measure, sign, control
        self._busy, self._tell = busy, tell
        self._lease_s, self._pause_s = lease_s, pause_s
        self._stop, self._ended, self._forgotten = (threading.Event() for _ in range(3))
        self._worker = 0

    def stop(self) -> None:
        """End after the job that is being measured; a handler of signals may call it."""
        self._stop.set()

    def work(self) -> None:
        """Work until ``stop``.

        Raises:
            SpecError: If the queue cannot be used.
            ResultsError: If this machine does not repeat known records.
        """
        with FleetQueue(self._address, self._tell, self._lease_s) as queue:
            queue.check()
            self._worker = queue.register(self._needs)
            heart = threading.Thread(target=self._beat, daemon=True)
            heart.start()
            try:
                self._serve(queue)
            finally:
                self._ended.set()
                heart.join(self._pause_s)
                queue.leave(self._worker)

    def _beat(self) -> None:
        """Beat also while the worker drains, and with a database that comes late."""
        while not self._ended.is_set():
            with suppress(SpecError), FleetQueue(self._address, _silent, self._lease_s) as queue:
                while not self._ended.wait(self._lease_s / 4):
                    if not queue.beat(self._worker):
                        self._forgotten.set()
            self._ended.wait(1.0)

    def _serve(self, queue: FleetQueue) -> None:
        done, waits = 0, ""
        controlled = -1
        while not self._stop.is_set():
            if self._forgotten.is_set():  # asleep for a day
                self._worker = queue.register(self._needs)
                self._forgotten.clear()
            claimed = None
            with self._place() as free:
                why = self._busy() if free else ""
                if why and why != waits:
                    self._tell(f"waiting: {why}")
                waits = why
                if free and not why:
                    if controlled < 0 or done - controlled >= _CONTROLLED_AFTER:
                        self._check_itself(queue)
                        controlled = done
                    claimed = queue.claim(self._worker, self._needs)
                if claimed is not None:
                    self._do(queue, claimed)
                    done += 1
            if claimed is None:
                self._stop.wait(self._pause_s)

    def _check_itself(self, queue: FleetQueue) -> None:
        differs = self._control()
        queue.control(differs)
        if differs:
            raise ResultsError(
                f"{queue.machine} does not repeat known records: {differs}",
                hint="ivhl doctor; its results since the last control are not imported",
            )

    def _do(self, queue: FleetQueue, claimed: Claimed) -> None:
        found, signature, said = None, None, ""
        try:
            text = self._measure(claimed.observe, claimed.attempt)
            signature = self._sign(text)
            found = text
        except IvhlError as error:
            said = f"{error}; {error.hint}"
        except Exception as error:  # noqa: BLE001  (the try says it, and another machine tries)
            said = f"{type(error).__name__}: {error}"
        name = f"{claimed.observe.need.cell} {claimed.observe.library}"
        if not queue.end(self._worker, claimed, found, said, signature):
            self._tell(f"{name}: ended after its lease, another worker has it")
        elif found is None:
            self._tell(f"{name}: not run: {said}")

    @contextmanager
    def _place(self) -> Iterator[bool]:
        """Hold a place on this machine, if one is free; the system frees that of a killed process.

        What measures inherits the open file: the place is taken until all of it has ended.
        """
        for path in self._places:
            with path.open("a") as file:
                os.set_inheritable(file.fileno(), True)  # noqa: FBT003  (it has no other form)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield True
                return
        yield False


def _silent(_: str) -> None:
    """Tell nothing: the worker's own connection tells of the same loss."""
