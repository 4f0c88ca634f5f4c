"""procrastinate with its own worker, and what it lacks for a fleet: `_reap`, `PatientManager`."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from procrastinate import App, JobContext, PsycopgConnector, exceptions
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from psycopg import InterfaceError, OperationalError, connect
from psycopg_pool import AsyncNullConnectionPool

from studies.queues.worker import MOST_TRIES, TRIES, Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from procrastinate.jobs import Status

T = TypeVar("T")
# Each case that waits (todo), is claimed (doing) or set aside (failed).
CASES: Final = """
    SELECT args->>'case', status::text FROM procrastinate_jobs
    WHERE status IN ('todo', 'doing', 'failed')"""
# Only a worker that beats keeps its job. The row's lock lets one of many workers put it back, and
# the queue's new name keeps it from the machine that lost it.
_REAP: Final = """
    SELECT CASE WHEN tried.times >= %(most)s
           THEN procrastinate_finish_job_v1(job.id, 'failed', false)
           ELSE procrastinate_retry_job_v2(job.id, NULL, NULL, 'not ' || tried.last, NULL) END
    FROM procrastinate_jobs AS job,
         LATERAL (SELECT count(*) AS times, (array_agg(machine ORDER BY id DESC))[1] AS last
                  FROM tries WHERE tries.job = job.id) AS tried
    WHERE job.status = 'doing' AND NOT EXISTS (
        SELECT FROM procrastinate_workers AS worker WHERE worker.id = job.worker_id
        AND worker.last_heartbeat > now() - make_interval(secs => %(lease_s)s))
    FOR UPDATE OF job SKIP LOCKED"""
_COORDINATORS: Final = 53  # any number that the database uses for nothing else
_TRY: Final = "INSERT INTO tries (job, machine) VALUES (%(job)s, %(machine)s) RETURNING id"


class PatientManager(JobManager):
    """Asks as often as the connection needs, where the library asks once.

    A job that it could not finish stays claimed by a living worker. After a heartbeat that raised,
    its worker works on without one: who watches the side tasks leaves when the first of them ends,
    and without periodic tasks one ends at once (its issue 1597).
    """

    async def finish_job_by_id_async(self, job_id: int, status: Status, delete_job: bool) -> None:  # noqa: FBT001
        """Finish a job, or leave a job alone that another worker has finished."""
        finish = super().finish_job_by_id_async
        with suppress(exceptions.ConnectorException):
            await patiently(lambda: finish(job_id, status, delete_job))

    async def update_heartbeat(self, worker_id: int) -> None:
        """Beat."""
        beat = super().update_heartbeat
        await patiently(lambda: beat(worker_id))


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the database until it is there to answer."""
    while True:
        try:
            return await ask()
        except exceptions.ConnectorException as error:
            if not isinstance(error.__cause__, OperationalError | InterfaceError):
                raise
            await asyncio.sleep(0.5)


def make_app(url: str, *, filled: bool = True) -> App:
    """Return the application; it connects when it is opened.

    It connects for each question: a pool of connections waits 1, 2 and 4 s after those that it
    finds cut, longer than the lease.
    """
    if not filled:
        return App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=4))
    pool = AsyncNullConnectionPool
    return App(connector=PsycopgConnector(conninfo=url, min_size=0, max_size=4, pool_factory=pool))


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


async def _reap(app: App, worker: Worker) -> None:
    while True:
        await asyncio.sleep(worker.lease_s / 2)
        try:
            await app.connector.execute_query_async(_REAP, most=MOST_TRIES, lease_s=worker.lease_s)
        except exceptions.ConnectorException as error:
            worker.log(error)


async def _serve(app: App, worker: Worker, stop: asyncio.Event, *, filled: bool) -> None:
    """Work until the worker ends by itself, as it does after a lost heartbeat, or is stopped."""
    others = {"machine-0": "machine-1", "machine-1": "machine-0"}
    async with app.open_async():
        if filled:
            app.job_manager = PatientManager(app.connector)
        working = asyncio.create_task(
            app.run_worker_async(
                queues=["any", f"not {others[worker.machine]}"],
                install_signal_handlers=False,
                fetch_job_polling_interval=0.5,
                update_heartbeat_interval=worker.lease_s / 4,
                stalled_worker_timeout=worker.lease_s,
            )
        )
        reaping = asyncio.create_task(_reap(app, worker) if filled else asyncio.sleep(0))
        stopping = asyncio.create_task(stop.wait())
        worker.ready()
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        reaping.cancel()
        stopping.cancel()
        working.cancel()  # the worker takes it for a request to finish its job and to end
        with suppress(asyncio.CancelledError):
            await working


async def work(worker: Worker, url: str, *, filled: bool = True) -> None:
    """Work until SIGTERM, through every loss of the connection."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = make_app(url, filled=filled)

    @app.task(name="measure", pass_context=True)
    async def measure(context: JobContext, case: str) -> None:
        async with worker.turn():
            ask = partial(
                app.connector.execute_query_one_async,
                _TRY,
                job=context.job.id,
                machine=worker.machine,
            )
            attempt = (await patiently(ask))["id"]
            await asyncio.to_thread(worker.measure, case, attempt)

    while not stop.is_set():
        try:
            await _serve(app, worker, stop, filled=filled)
        except Exception as error:  # noqa: BLE001, whatever the library raises when it lost its connection
            worker.log(error)
            await asyncio.sleep(0.5)
