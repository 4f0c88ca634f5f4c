"""ivhl's own queue and worker, on procrastinate's tables, with a sleep in place of a measurement."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any, Final

from psycopg import connect

from ivhl.fleet import coordinate
from ivhl.fleet.queue import FleetJob, FleetQueue, Need
from ivhl.fleet.worker import FleetWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from studies.queues.worker import Worker

# Each case that waits (todo), is claimed (doing) or set aside (failed).
CASES: Final = """
    SELECT args->>'name', status::text FROM procrastinate_jobs
    WHERE status IN ('todo', 'doing', 'failed')"""
_NEED: Final = Need("cell", "cpu", "any", "1")
# A role of the database is a machine.
_ROLES: Final = """
    DO $$ BEGIN CREATE ROLE "machine-0" LOGIN; CREATE ROLE "machine-1" LOGIN;
    EXCEPTION WHEN duplicate_object THEN NULL; END $$"""


def install(url: str) -> None:
    """Make roles and tables."""
    with connect(url) as connection:
        connection.execute(_ROLES)
    with FleetQueue(url, print) as queue:
        queue.install()


def submit(url: str, cases: Sequence[str]) -> None:
    """Queue the cases that the queue does not have."""
    jobs = [FleetJob(_NEED, case, (), None, 0.0, -number) for number, case in enumerate(cases)]
    with FleetQueue(url, print) as queue:
        coordinate.submit(queue, jobs)


def imported(url: str) -> list[dict[str, Any]]:
    """Return the records that an import finds."""
    with FleetQueue(url, print) as queue:
        return [json.loads(result["found"]) for result in coordinate.results(queue)]


async def work(worker: Worker, url: str) -> None:
    """Work until SIGTERM."""
    lock = worker.folder / f"{worker.machine}.lock"

    def measure(job: FleetJob, attempt: int) -> str:
        lock.write_text(str(os.getpid()))  # the study asks who measures
        try:
            return json.dumps(worker.measure(job.name, attempt))
        finally:
            lock.write_text("")

    fleet = FleetWorker(
        url.replace("//postgres@", f"//{worker.machine}@"),
        [_NEED],
        measure=measure,
        sign=lambda _: None,
        control=lambda: "",
        busy=lambda: "",
        places=[worker.folder / f"{worker.machine}.place"],
        turn=worker.folder / f"{worker.machine}.turn",
        tell=lambda line: worker.log(RuntimeError(line)),
        lease_s=worker.lease_s,
        pause_s=0.1,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fleet.stop)
    worker.ready()
    await asyncio.to_thread(fleet.work)
