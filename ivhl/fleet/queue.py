"""The queue of a fleet, as a worker sees it: claim a job, beat, hand in what was found."""

from __future__ import annotations

import hashlib
import platform
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from packaging.version import Version

from ivhl.errors import SpecError
from ivhl.fleet.database import FleetDatabase
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.spec import CellSpec
from ivhl.records.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg import Connection

# A job that ends two workers, on two machines if there are two, is set aside.
MOST_TRIES: Final = 2
_LONGEST: Final = 4000
# Characters of a queue's name: procrastinate puts 23 before the name of a channel, and PostgreSQL
# allows 63.
_LONGEST_NAME: Final = 40
MOST_LIBRARIES: Final = 10_000  # more than a table has
EXCEPT: Final = " not "
BEATS: Final = "last_heartbeat > now() - make_interval(secs => %(lease_s)s)"
# Only a worker that beats keeps its job; nobody could beat before the database had started. The
# row's lock lets one of many put it back.
_REAP: Final = f"""
    WITH stalled AS (
        SELECT job.id, job.queue_name, tried.times, tried.machine
        FROM procrastinate_jobs AS job, LATERAL (
            SELECT count(*) AS times, (array_agg(machine ORDER BY id DESC))[1] AS machine
            FROM ivhl_tries WHERE ivhl_tries.job = job.id) AS tried
        WHERE job.status = 'doing' AND NOT EXISTS (
            SELECT FROM procrastinate_workers WHERE id = job.worker_id AND {BEATS})
        AND pg_postmaster_start_time() < now() - make_interval(secs => %(lease_s)s)
        FOR UPDATE OF job SKIP LOCKED)
    SELECT CASE WHEN times >= {MOST_TRIES} THEN procrastinate_finish_job_v1(id, 'failed', false)
        ELSE procrastinate_retry_job_v2(id, NULL, NULL,
            split_part(queue_name, '{EXCEPT}', 1) || '{EXCEPT}' || machine, NULL) END
    FROM stalled"""  # noqa: S608  (constants, here and below)
# A claim whose answer got lost is found again.
_MINE: Final = (
    "SELECT id, args FROM procrastinate_jobs WHERE worker_id = %(worker)s AND status = 'doing'"
)
_CLAIM: Final = (
    "SELECT id, args FROM procrastinate_fetch_job_v2(%(queues)s::varchar[], %(worker)s)"
)
# All names of queues, by as many steps in their index: a DISTINCT would read each of 60,000 jobs.
_QUEUES: Final = """
    WITH RECURSIVE names AS (
        SELECT min(queue_name) AS name FROM procrastinate_jobs
        UNION ALL
        SELECT (SELECT min(queue_name) FROM procrastinate_jobs WHERE queue_name > names.name)
        FROM names WHERE names.name IS NOT NULL)
    SELECT name FROM names WHERE name IS NOT NULL"""
_OTHERS: Final = f"""
    SELECT DISTINCT unnest(serves) AS need FROM ivhl_workers JOIN procrastinate_workers USING (id)
    WHERE machine <> session_user AND {BEATS}"""  # noqa: S608
_FIRST: Final = """
    SELECT queue_name FROM procrastinate_jobs
    WHERE status = 'todo' AND queue_name = ANY(%(queues)s::varchar[])
    ORDER BY priority DESC, id LIMIT 1"""
_TRY: Final = "INSERT INTO ivhl_tries (job, worker) VALUES (%(job)s, %(worker)s) RETURNING id"
_OPEN_TRY: Final = """
    SELECT id FROM ivhl_tries
    WHERE job = %(job)s AND worker = %(worker)s AND ended IS NULL ORDER BY id DESC LIMIT 1"""
_END: Final = """
    UPDATE ivhl_tries
    SET ended = now(), said = %(said)s, found = %(found)s, signature = %(signature)s
    WHERE id = %(id)s AND ended IS NULL"""


class Need(NamedTuple):
    """The needs of a job; their text is the name of a queue.

    Attributes:
        alone: Whether nothing else of the fleet may run on the machine, whose clock is steady.
        machine: The only machine that may do it; empty for any.
    """

    cell: str
    device: str
    architecture: str
    instrument: str
    alone: bool = False
    machine: str = ""

    def __str__(self) -> str:
        """Return its words, or the cell and a digest of all words where a name may not be longer."""
        words = [*self[:4], *["alone"] * self.alone]
        text = " ".join([*words, "of", self.machine] if self.machine else words)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return text if len(text) <= _LONGEST_NAME else f"{self.cell} {digest}"


@dataclass(frozen=True, slots=True)
class FleetJob:
    """The questions to a library in a cell, or the timings of a commit in a cell, as queued.

    Attributes:
        name: The library's name, or the first digits of the commit.
        rows: Each question's SHA-256 of all that its row says; for timings the names of cases.
        lock: SHA-256 of the cell's lock.
        core_s: CPU seconds that it takes by earlier records.
        worth: Jobs of a larger number come first.
        commit: Full hash of the commit to time; empty for a library.
    """

    need: Need
    name: str
    rows: tuple[str, ...]
    lock: str | None
    core_s: float
    worth: int
    commit: str = ""

    @property
    def key(self) -> str:
        """What the queue has once, as a SHA-256."""
        words = (str(self.need), self.name, str(self.lock), *self.rows, self.commit)
        return hashlib.sha256(" ".join(words).encode()).hexdigest()


def need_of(cell: CellSpec) -> Need:
    """Return what a job in a cell needs on a CPU; a machine with the cell's Python serves it."""
    return Need(cell.id, "cpu", platform.machine(), str(INSTRUMENT))


def cell_of(need: Need) -> CellSpec:
    """Return the cell of a job."""
    return CellSpec(*need.cell.removeprefix("py").split("-torch"))


def worth_of(cell: CellSpec) -> int:
    """Return what a job in a cell is worth, more in a newer release: 215000000 in 2.15.0."""
    major, minor, micro = (*Version(cell.torch).release, 0, 0)[:3]
    return ((major * 100 + minor) * 100 + micro) * MOST_LIBRARIES


class Claimed(NamedTuple):
    """A job that this worker has claimed, and the number of its try, larger for each later one."""

    id: int
    attempt: int
    job: FleetJob


class FleetQueue(FleetDatabase):
    """The queue; see ``FleetDatabase``."""

    def register(self, needs: Iterable[Need]) -> int:
        """Return the number of a new worker that serves these needs."""

        def add(connection: Connection[dict[str, Any]]) -> int:
            new = connection.execute("SELECT procrastinate_register_worker_v1() AS id").fetchone()
            number = int(new["id"] if new else 0)
            about = (number, [str(one) for one in needs])
            connection.execute("INSERT INTO ivhl_workers (id, serves) VALUES (%s, %s)", about)
            return number

        return self.patiently(add)

    def leave(self, worker: int) -> None:
        """Forget a worker; without an answer of the database its lease ends by itself."""
        self.given_up = lambda: True
        with suppress(SpecError):
            self.do("DELETE FROM procrastinate_workers WHERE id = %(id)s", id=worker)

    def beat(self, worker: int) -> bool:
        """Keep a worker's job, put back those of dead workers; return whether it is registered."""

        def beat(connection: Connection[dict[str, Any]]) -> bool:
            connection.execute("SELECT procrastinate_update_heartbeat_v1(%s)", (worker,))
            known = connection.execute(
                "SELECT FROM procrastinate_workers WHERE id = %s", (worker,)
            ).fetchone()
            connection.execute(_REAP, {"lease_s": self.lease_s})
            # Rows of workers that were killed; the claims that they had are put back above.
            connection.execute("SELECT procrastinate_prune_stalled_workers_v1(86400)")
            return known is not None

        return self.patiently(beat)

    def claim(self, worker: int, needs: Iterable[Need]) -> Claimed | None:
        """Claim the first job of these needs, and begin a try; ``None`` without one."""

        def claim(connection: Connection[dict[str, Any]]) -> Claimed | None:
            values: dict[str, object] = {"worker": worker, "lease_s": self.lease_s}
            found = connection.execute(_MINE, values).fetchone()
            if found is None:
                queues = self._queues(connection, needs)
                found = connection.execute(_CLAIM, values | {"queues": queues}).fetchone()
            if found is None or found["id"] is None:
                return None
            job = {"job": found["id"], "worker": worker}
            begun = connection.execute(_OPEN_TRY, job).fetchone()
            begun = begun or connection.execute(_TRY, job).fetchone()
            args = dict(found["args"])
            args |= {"need": Need(*args["need"]), "rows": (*args["rows"],)}
            return Claimed(found["id"], begun["id"] if begun else 0, FleetJob(**args))

        return self.patiently(claim)

    def is_alone_first(self, needs: Iterable[Need]) -> bool:
        """Return whether the first job of these needs wants its machine for itself."""
        alone = {str(one) for one in needs if one.alone}

        def look(connection: Connection[dict[str, Any]]) -> bool:
            values = {"queues": self._queues(connection, needs)}
            first = connection.execute(_FIRST, values).fetchone()
            return first is not None and first["queue_name"].partition(EXCEPT)[0] in alone

        return bool(alone) and self.patiently(look)

    def _queues(self, connection: Connection[dict[str, Any]], needs: Iterable[Need]) -> list[str]:
        """Return the names of the queues of these needs that this machine may take from now.

        A job that it has tried goes to another machine that serves the same, if there is one.
        """
        served = {str(one) for one in needs}
        others = {
            row["need"]
            for row in connection.execute(_OTHERS, {"lease_s": self.lease_s}).fetchall()
        }
        queues = []
        for row in connection.execute(_QUEUES).fetchall():
            base, _, refused = row["name"].partition(EXCEPT)
            if base in served and (refused != self.machine or base not in others):
                queues.append(row["name"])
        return queues

    def end(
        self,
        worker: int,
        claimed: Claimed,
        found: str | None,
        said: str = "",
        signature: str | None = None,
    ) -> bool:
        """End a try with what it found, or without; return whether the job was still its own.

        A result that comes after the lease is dropped: another worker has the job.

        Args:
            worker: Who claimed it.
            claimed: What it claimed.
            found: Records; ``None`` puts the job back for another machine, or sets it aside.
            said: Why nothing was found.
            signature: Of what was found.
        """

        def end(connection: Connection[dict[str, Any]]) -> bool:
            held = connection.execute(
                "SELECT queue_name FROM procrastinate_jobs"
                " WHERE id = %s AND worker_id = %s AND status = 'doing' FOR UPDATE",
                (claimed.id, worker),
            ).fetchone()
            about: dict[str, object] = {"id": claimed.attempt, "signature": signature}
            if held is None:
                late = {"found": None, "said": "superseded: it ended after its lease"}
                connection.execute(_END, about | late)
                done = connection.execute(
                    "SELECT found FROM ivhl_tries WHERE id = %s", (claimed.attempt,)
                ).fetchone()
                # An answer that got lost: this transaction was done before.
                return done is not None and done["found"] is not None
            told = printable(said)[:_LONGEST]
            kept = connection.execute(_END, about | {"found": found, "said": told}).rowcount
            if found is not None and kept:
                how = "SELECT procrastinate_finish_job_v1(%(job)s, 'succeeded', false)"
            elif self._tries(connection, claimed.id) >= MOST_TRIES:
                how = "SELECT procrastinate_finish_job_v1(%(job)s, 'failed', false)"
            else:
                how = "SELECT procrastinate_retry_job_v2(%(job)s, NULL, NULL, %(queue)s, NULL)"
            queue = f"{claimed.job.need}{EXCEPT}{self.machine}"
            connection.execute(how, {"job": claimed.id, "queue": queue})
            return True

        return self.patiently(end)

    @staticmethod
    def _tries(connection: Connection[dict[str, Any]], job: int) -> int:
        """Return how often a job was tried since it was queued, or put back by hand."""
        row = connection.execute(
            "SELECT count(*) AS times FROM ivhl_tries WHERE job = %s", (job,)
        ).fetchone()
        return int(row["times"]) if row else 0

    def control(self, said: str) -> None:
        """Write down that this machine repeated known records, and where they differ, if they do."""
        self.do(
            "INSERT INTO ivhl_tries (ended, said) VALUES (now(), %(said)s)",
            said=printable(said)[:_LONGEST],
        )
