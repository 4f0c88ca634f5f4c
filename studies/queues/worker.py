"""One worker process of the study; `studies.queues.fleet` starts it."""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import json
import os
import select
import signal
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# A try has a number that no other try has, from the database's sequence: the later try of a case
# is the one with the larger number, whatever the clocks say.
TRIES = "CREATE TABLE tries (id bigserial PRIMARY KEY, job bigint, machine text)"
MOST_TRIES = 2
POISON = "poison"


@dataclass(frozen=True)
class Worker:
    """What measures: the lock of its machine lets one process measure at a time."""

    folder: Path
    name: str
    machine: str
    ms: float
    lease_s: float

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold the machine: one process measures at a time.

        The lock's file names that process. The system unlocks when it dies, also by SIGKILL, and
        not while SIGSTOP holds it.
        """
        with (self.folder / f"{self.machine}.lock").open("a+") as lock:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            lock.truncate(0)  # a killed process left its number
            lock.write(str(os.getpid()))
            lock.flush()
            yield
            lock.truncate(0)

    def measure(self, case: str, attempt: int) -> dict[str, str | int | float]:
        """Sleep in place of a measurement, append its record and return it."""
        start = time.monotonic()
        select.select([], [], [], self.ms / 1e3)  # faketime breaks time.sleep
        if case.startswith(POISON):
            os.kill(os.getpid(), signal.SIGKILL)
        record: dict[str, str | int | float] = {
            "case": case,
            "attempt": attempt,
            "worker": self.name,
            "machine": self.machine,
            "pid": os.getpid(),
            "start": start,
            "end": time.monotonic(),
            "cpu": time.process_time(),
        }
        with (self.folder / f"{self.name}.jsonl").open("a") as records:
            records.write(json.dumps(record) + "\n")
        return record

    def log(self, error: BaseException) -> None:
        """Append an error that the worker survives."""
        with (self.folder / f"{self.name}.log").open("a") as log:
            log.write(f"{type(error).__name__}: {error}\n")

    def ready(self) -> None:
        """Tell the study that imports are done."""
        (self.folder / f"{self.name}.ready").touch()


def main() -> None:
    """Work until SIGTERM."""
    library, url, folder, name, machine, ms, lease_s = sys.argv[1:]
    worker = Worker(Path(folder), name, machine, float(ms), float(lease_s))
    asyncio.run(importlib.import_module(f"studies.queues.on_{library}").work(worker, url))


if __name__ == "__main__":
    main()
