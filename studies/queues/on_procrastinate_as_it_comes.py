"""procrastinate as it comes: its worker, restarted when it ends, and nothing else."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.jobs import Job
from psycopg import connect

from studies.queues.worker import TRIES, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

# Each case that waits (todo), is claimed (doing) or set aside (failed).
CASES: Final = """
    SELECT args->>'case', status::text FROM procrastinate_jobs
    WHERE status IN ('todo', 'doing', 'failed')"""
_COORDINATORS: Final = 53  # any number that the database uses for nothing else
_TRY: Final = "INSERT INTO tries (job, machine) VALUES (%(job)s, %(machine)s) RETURNING id"


def make_app(url: str) -> App:
    """Return the application; it connects when it is opened."""
    return App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=4))


def install(url: str) -> None:
    """Make the tables."""
    app = make_app(url)
    with app.open():
        app.schema_manager.apply_schema()
        app.connector.get_sync_connector().execute_query(TRIES)


def submit(url: str, cases: Sequence[str]) -> None:
    """Queue the cases that the queue has in no state, in one transaction.

    The library's own lock covers waiting jobs only: a case that is claimed or measured would be
    queued again. The lock of the transaction lets one coordinator look at a time.
    """
    app = make_app(url)
    with app.open(), connect(url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_COORDINATORS,))
        rows = connection.execute("SELECT queueing_lock FROM procrastinate_jobs")
        known = {name for (name,) in rows}
        jobs = [
            Job(
                id=None,
                queue="any",
                lock=None,
                queueing_lock=case,
                task_name="measure",
                task_kwargs={"case": case},
            )
            for case in cases
            if case not in known
        ]
        if jobs:
            app.job_manager.batch_defer_jobs(jobs, connection=connection)


async def _serve(app: App, worker: Worker, stop: asyncio.Event) -> None:
    """Work until the worker ends by itself, as it does after a lost heartbeat, or is stopped."""
    async with app.open_async():
        working = asyncio.create_task(
            app.run_worker_async(
                install_signal_handlers=False,
                fetch_job_polling_interval=0.5,
                update_heartbeat_interval=worker.lease_s / 4,
                stalled_worker_timeout=worker.lease_s,
            )
        )
        stopping = asyncio.create_task(stop.wait())
        worker.ready()
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        working.cancel()  # the worker takes it for a request to finish its job and to end
        with suppress(asyncio.CancelledError):
            await working


async def work(worker: Worker, url: str) -> None:
    """Work until SIGTERM; a job whose worker died stays claimed."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = make_app(url)

    @app.task(name="measure", pass_context=True)
    async def measure(context: JobContext, case: str) -> None:
        async with worker.turn():
            values = {"job": context.job.id, "machine": worker.machine}
            attempt = (await app.connector.execute_query_one_async(_TRY, **values))["id"]
            await asyncio.to_thread(worker.measure, case, attempt)

    while not stop.is_set():
        try:
            await _serve(app, worker, stop)
        except Exception as error:  # noqa: BLE001, whatever the library raises when it lost its connection
            worker.log(error)
            await asyncio.sleep(0.5)
