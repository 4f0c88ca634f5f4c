"""The queue of a fleet, as who coordinates sees it: queue jobs, look, take results home."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ivhl.errors import SpecError
from ivhl.fleet.database import COORDINATORS, Rows
from ivhl.fleet.queue import BEATS, EXCEPT
from ivhl.records.bounds import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg import Connection

    from ivhl.fleet.queue import FleetJob, FleetQueue

_TASK: Final = "ivhl.observe"
_SUBMIT: Final = """
    SELECT procrastinate_defer_jobs_v1(array_agg(
        (queue, %(task)s, priority, NULL, key, args::jsonb, NULL)::procrastinate_job_to_defer_v1
        ORDER BY priority DESC)) AS ids
    FROM unnest(%(queues)s::text[], %(priorities)s::int[], %(keys)s::text[], %(args)s::text[])
        AS new (queue, priority, key, args)
    WHERE NOT EXISTS (SELECT FROM procrastinate_jobs WHERE queueing_lock = key)"""
_AGAIN: Final = f"""
    WITH again AS (
        SELECT id, queue_name FROM procrastinate_jobs
        WHERE status = 'failed' AND (%(all)s OR args->>'name' = ANY(%(names)s)) FOR UPDATE),
    forgotten AS (DELETE FROM ivhl_tries USING again WHERE job = again.id)
    SELECT procrastinate_retry_job_v2(
        id, NULL, NULL, split_part(queue_name, '{EXCEPT}', 1), NULL) FROM again"""  # noqa: S608
_CANCEL: Final = """
    DELETE FROM procrastinate_jobs WHERE status IN ('todo', 'failed')
    AND (%(name)s IN (args->>'name', args->'need'->>0)
        OR length(%(name)s) >= 7 AND starts_with(args->>'commit', %(name)s)) RETURNING id"""
_WORKERS: Final = f"""
    WITH here AS (
        SELECT *, extract(epoch FROM now() - last_heartbeat)::int AS beat_s
        FROM ivhl_workers JOIN procrastinate_workers USING (id) WHERE {BEATS})
    SELECT id, machine, serves, beat_s,
        (SELECT args->>'name' || ' in ' || (args->'need'->>0) FROM procrastinate_jobs
         WHERE worker_id = here.id AND status = 'doing' LIMIT 1) AS now
    FROM here ORDER BY id"""  # noqa: S608
_CELLS: Final = """
    SELECT args->'need'->>0 AS cell,
        count(*) FILTER (WHERE status = 'todo') AS todo,
        count(*) FILTER (WHERE status = 'doing') AS doing,
        count(*) FILTER (WHERE status = 'succeeded') AS done,
        count(*) FILTER (WHERE status = 'succeeded' AND EXISTS (
            SELECT FROM ivhl_tries WHERE job = procrastinate_jobs.id AND imported IS NOT NULL)
        ) AS imported,
        count(*) FILTER (WHERE status = 'failed') AS failed,
        coalesce(sum((args->>'core_s')::float)
            FILTER (WHERE status IN ('todo', 'doing')), 0)::int AS core_s
    FROM procrastinate_jobs GROUP BY 1 ORDER BY max(priority) DESC, 1"""
_ASIDE: Final = """
    SELECT args->>'name' AS name, args->'need'->>0 AS cell,
        array(SELECT machine || ': ' || coalesce(nullif(left(said, 4000), ''),
                  'its worker ended, or lost its connection') FROM ivhl_tries
              WHERE job = procrastinate_jobs.id ORDER BY id) AS said
    FROM procrastinate_jobs WHERE status = 'failed' ORDER BY id"""
_SET_ASIDE: Final = """
    WITH refused AS (UPDATE ivhl_tries SET said = %(said)s WHERE id = %(id)s RETURNING job)
    UPDATE procrastinate_jobs SET status = 'failed' FROM refused WHERE id = job"""
# The newest try of each job, with the controls of its machine before and after that try. A job
# that is imported stays with that try, also when it is imported again.
_RESULTS: Final = """
    WITH home AS (
        SELECT DISTINCT ON (job) try.id, job, machine, left(found, 33554432) AS found, signature,
            args
        FROM ivhl_tries AS try JOIN procrastinate_jobs AS queued ON queued.id = job
        WHERE found IS NOT NULL AND status = 'succeeded'
        AND (imported IS NOT NULL AND %(again)s OR NOT EXISTS (
            SELECT FROM ivhl_tries WHERE job = queued.id AND imported IS NOT NULL))
        ORDER BY job, try.id DESC),
    control AS (SELECT id, machine, left(said, 4000) AS said FROM ivhl_tries WHERE job IS NULL)
    SELECT *,
        (SELECT said FROM control WHERE machine = home.machine AND id < home.id
         ORDER BY id DESC LIMIT 1) AS before,
        (SELECT said FROM control WHERE machine = home.machine AND id > home.id
         ORDER BY id LIMIT 1) AS after
    FROM home"""


def submit(queue: FleetQueue, jobs: Iterable[FleetJob]) -> int:
    """Queue the jobs that the queue has in no state; return how many.

    Raises:
        SpecError: If this role may not queue.
    """
    waiting = [*jobs]
    values = {
        "task": _TASK,
        "queues": [str(one.need) for one in waiting],
        "priorities": [one.worth for one in waiting],
        "keys": [one.key for one in waiting],
        "args": [json.dumps(asdict(one)) for one in waiting],
    }

    def ask(connection: Connection[dict[str, Any]]) -> int:
        # One coordinator looks at a time: the library's own lock covers waiting jobs only.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (COORDINATORS,))
        made = connection.execute(_SUBMIT, values).fetchone()
        return len(made["ids"] or ()) if made else 0

    return queue.patiently(ask)


def retry(queue: FleetQueue, names: Iterable[str]) -> int:
    """Put back the jobs that were set aside, for any machine; return how many.

    Raises:
        SpecError: If this role may not do so.
    """
    named = [*names]
    return len(queue.rows(_AGAIN, all=not named, names=named))


def cancel(queue: FleetQueue, name: str) -> int:
    """Remove the jobs of a library, commit or cell that wait or were set aside; return how many.

    Raises:
        SpecError: If this role may not do so, or the queue has no such job.
    """
    if not (removed := queue.rows(_CANCEL, name=name)):
        raise SpecError(
            f"no job of {name} waits or was set aside",
            hint="ivhl fleet status names cells and commits; running jobs continue, results stay",
        )
    return len(removed)


def workers(queue: FleetQueue) -> Rows:
    """Return the workers that beat: number, machine, what they serve, and what they do now."""
    return queue.rows(_WORKERS, lease_s=queue.lease_s)


def cells(queue: FleetQueue) -> Rows:
    """Return for each cell how many jobs wait, run, are done, imported or set aside."""
    return queue.rows(_CELLS)


def set_aside_jobs(queue: FleetQueue) -> Rows:
    """Return name and cell of each job that was set aside, and what its tries said."""
    return queue.rows(_ASIDE)


def results(queue: FleetQueue, *, again: bool = False) -> Rows:
    """Return the results to import: number, job, machine, text, and what controls said.

    ``again`` adds the results that were imported.
    ``before`` is ``None`` if no control came before it; ``after`` is the next control's.
    """
    return queue.rows(_RESULTS, again=again)


def found_in(result: dict[str, Any]) -> tuple[list[str], dict[str, bytes]]:
    """Return the records of a result, each in JSON, and the locks beside them, by their names.

    Raises:
        ValueError: If a worker writes no such text, or in another try.
    """
    try:
        found = json.loads(result["found"])
        lines = [str(line) for line in found["records"]]
        locks = {str(name): str(text).encode() for name, text in found.get("locks", {}).items()}
        attempt = found["attempt"]
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ValueError("must be records in JSON, as a worker writes them") from error
    if attempt != result["id"]:
        raise ValueError(f"attempt: must be this try, {result['id']} (got {shown(attempt)})")
    return lines, locks


def check_importer(queue: FleetQueue) -> None:
    """Check that this role may write down what is imported.

    Raises:
        SpecError: If not, or as ``FleetQueue.check``.
    """
    queue.check()
    may = "SELECT has_column_privilege('ivhl_tries', 'imported', 'UPDATE') AS may"
    if not queue.one(may)["may"]:
        raise SpecError(
            f"{queue.machine} may not import", hint="use the address of the database's owner"
        )


def take_home(queue: FleetQueue, result: int) -> None:
    """Write down that a result is imported."""
    queue.do("UPDATE ivhl_tries SET imported = now() WHERE id = %(id)s", id=result)


def set_aside(queue: FleetQueue, result: int, said: str) -> None:
    """Set the job of a result aside that is refused, and write down why."""
    queue.do(_SET_ASIDE, id=result, said=said)
