"""A worker of a fleet: claims a job, measures, hands the records in, until it is told to stop.

One process has one job at a time. Its heart beats in a thread with a connection of its own, also
while it drains.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ivhl.errors import IvhlError, LockError, ResultsError, SpecError
from ivhl.fleet.database import LEASE_S
from ivhl.fleet.queue import FleetQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ivhl.fleet.queue import Claimed, FleetJob, Need

# Jobs between two controls of a machine.
_CONTROLLED_AFTER: Final = 25
_LONGEST_PAUSE_S: Final = 600.0


class FleetWorker:
    """One worker.

    Args:
        address: Of the queue, as for ``FleetQueue``.
        needs: What this machine serves.
        measure: Returns what a job found in a try of this number, as a text.
        sign: Returns a signature of such a text, or ``None``.
        control: Repeats known records and returns where they differ; empty if they do not. A
            ``LockError`` says why none can be repeated now.
        busy: Returns why this machine can take no job now; empty if it can.
        places: A file for each job that this machine may do at a time.
        turn: A file for the job that has this machine for itself.
        tell: Called with each line for the person who waits.
        lease_s: As for ``FleetQueue``.
        pause_s: Between two looks at an empty queue.
    """

    def __init__(
        self,
        address: str,
        needs: Sequence[Need],
        *,
        measure: Callable[[FleetJob, int], str],
        sign: Callable[[str], str | None],
        control: Callable[[], str],
        busy: Callable[[], str],
        places: Sequence[Path],
        turn: Path,
        tell: Callable[[str], object],
        lease_s: float = LEASE_S,
        pause_s: float = 5.0,
    ) -> None:
        self._address, self._needs = address, needs
        self._places, self._turn = places, turn
        self._measure, self._sign, self._control = measure, sign, control
        self._busy, self._tell = busy, tell
        self._lease_s, self._pause_s = lease_s, pause_s
        self._stop, self._ended, self._forgotten = (threading.Event() for _ in range(3))
        self._worker, self._measures = 0, False

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
        done, controlled_at, waits, failed = 0, 0, "", 0
        queue.given_up = lambda: self._stop.is_set() and not self._measures
        while not self._stop.is_set():
            if self._forgotten.is_set():  # asleep for a day
                self._worker = queue.register(self._needs)
                self._forgotten.clear()
            claimed = None
            alone = queue.is_alone_first(self._needs)
            needs = [one for one in self._needs if one.alone == alone]
            with self._place(alone=alone) as free:
                why = self._busy() if free else "other jobs use this machine"
                if not why and done >= controlled_at:
                    why = self._check_itself(queue)
                    controlled_at = controlled_at if why else done + _CONTROLLED_AFTER
                if why and why != waits:
                    self._tell(f"waiting: {why}")
                waits = why
                if not why and not self._stop.is_set():
                    claimed = queue.claim(self._worker, needs)
                if claimed is not None:
                    failed = 0 if self._do(queue, claimed) else failed + 1
                    done += 1
            if claimed is None or failed:
                # A machine on which nothing runs shall not set all jobs aside.
                self._stop.wait(min(self._pause_s * 2**failed, _LONGEST_PAUSE_S))

    def _check_itself(self, queue: FleetQueue) -> str:
        """Return why known records could not be repeated now; empty if they were."""
        try:
            differs = self._control()
        except LockError as error:
            return f"{error}; {error.hint}"
        queue.control(differs)
        if differs:
            raise ResultsError(
                f"{queue.machine} does not repeat known records: {differs}",
                hint="run ivhl doctor; results since the last control are not imported",
            )
        return ""

    def _do(self, queue: FleetQueue, claimed: Claimed) -> bool:
        """Measure a job; return whether this machine could."""
        found, signature, said = None, None, ""
        try:
            self._measures = True
            text = self._measure(claimed.job, claimed.attempt)
            signature = self._sign(text)
            found = text
        except IvhlError as error:
            said = f"{error}; {error.hint}"
        except Exception as error:  # noqa: BLE001  (the try says it, and another machine tries)
            said = f"{type(error).__name__}: {error}"
        name = f"{claimed.job.need.cell} {claimed.job.name}"
        kept = queue.end(self._worker, claimed, found, said, signature)
        self._measures = False
        if not kept:
            self._tell(f"{name}: ended after its lease, another worker has it")
        elif found is None:
            self._tell(f"{name}: not run: {said}")
        return found is not None

    @contextmanager
    def _place(self, *, alone: bool) -> Iterator[bool]:
        """Hold a place on this machine, if one is free; all of them for a job that is alone.

        Who waits for all of them has the turn: nobody else begins a job. The system frees the
        places of a killed process. What measures inherits the open files: a place is taken until
        all of it has ended.
        """
        with ExitStack() as turn, ExitStack() as held:
            if not _locked(turn, self._turn, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
                yield False
            elif alone:
                yield all(self._waited(held, path) for path in self._places)
            else:
                free = any(_locked(held, path, fcntl.LOCK_EX) for path in self._places)
                turn.close()
                yield free

    def _waited(self, held: ExitStack, path: Path) -> bool:
        """Wait for a place; return whether it is held, and this worker was not told to stop."""
        while not _locked(held, path, fcntl.LOCK_EX):
            if self._stop.wait(self._pause_s):
                return False
        return not self._stop.is_set()


def _locked(held: ExitStack, path: Path, how: int) -> bool:
    """Lock a file until ``held`` is closed; return whether it was free."""
    file = held.enter_context(path.open("a"))
    os.set_inheritable(file.fileno(), True)  # noqa: FBT003  (it has no other form)
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    return True


def _silent(_: str) -> None:
    """Tell nothing: the worker's own connection tells of the same loss."""
