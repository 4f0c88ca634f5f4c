"""PgQueuer with its own worker and supervisor, and what it lacks for a fleet: the count of tries."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import pgqueuer
from pgqueuer import QueueManager
from pgqueuer.core import logconfig
from pgqueuer.domain.errors import RetryRequested

from studies.queues.worker import MOST_TRIES, TRIES, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

# Each case that waits (todo), is claimed (doing) or set aside (failed).
CASES: Final = """
    SELECT convert_from(payload, 'UTF8'),
           CASE status WHEN 'queued' THEN 'todo' WHEN 'picked' THEN 'doing' ELSE status::text END
    FROM pgqueuer"""
_TRY: Final = "INSERT INTO tries (job, machine) VALUES ($1, $2) RETURNING id"
_TRIED: Final = "SELECT machine FROM tries WHERE job = $1"


def install(url: str) -> None:
    """Make the tables."""

    async def make() -> None:
        connection = await asyncpg.connect(url)
        await pgqueuer.Queries.from_asyncpg_connection(connection).install()
        await connection.execute(TRIES)
        await connection.close()

    asyncio.run(make())


def submit(url: str, cases: Sequence[str]) -> None:
    """Queue the cases that neither wait in the queue nor are claimed."""

    async def queue() -> None:
        connection = await asyncpg.connect(url)
        await pgqueuer.Queries.from_asyncpg_connection(connection).enqueue(
            ["measure"] * len(cases),
            [case.encode() for case in cases],
            [0] * len(cases),
            dedupe_key=[*cases],
            on_conflict="skip",
        )
        await connection.close()

    asyncio.run(queue())


async def _begin(pool: Any, worker: Worker, job: int, *, filled: bool) -> int:  # noqa: ANN401, asyncpg has no types
    """Return the number of this try; raise where the job is for another machine, or for none."""
    tried = await _patiently(worker, lambda: pool.fetch(_TRIED, job)) if filled else []
    if len(tried) >= MOST_TRIES:
        message = f"set aside after {len(tried)} tries"
        raise RuntimeError(message)
    if worker.machine in [row["machine"] for row in tried]:
        raise RetryRequested(delay=timedelta(seconds=0.5))
    return int(await _patiently(worker, lambda: pool.fetchval(_TRY, job, worker.machine)))


async def _patiently(worker: Worker, ask: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401
    """Ask the database until it answers."""
    while True:
        try:
            return await ask()
        # A pool whose connection was cut raises asyncpg's InternalClientError, too.
        except Exception as error:  # noqa: BLE001
            worker.log(error)
            await asyncio.sleep(0.5)


async def work(worker: Worker, url: str, *, filled: bool = True) -> None:
    """Work until SIGTERM, through every loss of the connection.

    The queue's manager works alone. The library's application adds a scheduler; when that loses
    its connection, the application cancels the running jobs, and a cancelled job is deleted.
    """
    logconfig.logger.setLevel("CRITICAL")

    @asynccontextmanager
    async def factory() -> AsyncIterator[QueueManager | pgqueuer.PgQueuer]:
        pool = await asyncpg.create_pool(
            url, min_size=2, max_size=4, command_timeout=worker.lease_s
        )
        manager: QueueManager | pgqueuer.PgQueuer
        if filled:
            manager = QueueManager(pgqueuer.Queries.from_asyncpg_pool(pool))
        else:
            manager = pgqueuer.PgQueuer.from_asyncpg_pool(pool)

        @manager.entrypoint("measure", on_failure="hold")
        async def measure(job: pgqueuer.Job) -> None:
            async with worker.turn():
                attempt = await _begin(pool, worker, job.id, filled=filled)
                case = (job.payload or b"").decode()
                await asyncio.to_thread(worker.measure, case, attempt)

        worker.ready()
        try:
            yield manager
        finally:
            # After a lost connection the library does not release that of its listener, and a
            # pool that is closed waits for it.
            if filled:
                pool.terminate()
            else:
                await pool.close()

    await pgqueuer.run(
        factory,
        dequeue_timeout=timedelta(seconds=0.5),
        batch_size=1,
        max_concurrent_tasks=2,  # the least that the library allows: two claims of each worker
        heartbeat_timeout=timedelta(seconds=worker.lease_s),
        restart_on_failure=True,
        restart_delay=timedelta(seconds=0.5),
    )
