"""The database of a fleet: a connection that is patient, and the tables.

Tables and functions of procrastinate hold the jobs and who has claimed which (docs/adr/0048); the
tables here hold each try, under the name of the machine that made it. Each question is a
transaction of its own and is asked until the database answers. All times are the database's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import urlsplit

from ivhl.errors import SpecError
from ivhl.records.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import Connection, Error

T = TypeVar("T")
Rows = list[dict[str, Any]]
# After so many seconds a worker that does not beat loses its job.
LEASE_S: Final = 120.0
# Any number that the database uses for nothing else: who holds it looks and queues alone.
COORDINATORS: Final = 53
_EXTRA: Final = "python -m pip install 'ivhl[fleet]'"
_ADDRESS: Final = (
    "it is postgresql://MACHINE:TOKEN@HOST/DATABASE, in IVHL_QUEUE, with %XX for signs that an "
    "address does not have; docs/fleet.md tells how its owner adds a machine"
)
_VERSION: Final = 3
# Before it, whoever may connect may make functions in the schema of the tables.
_OLDEST: Final = 15
# Functions of procrastinate that are used here: an older or newer schema has others.
_FUNCTIONS: Final = (
    "procrastinate_defer_jobs_v1(procrastinate_job_to_defer_v1[])",
    "procrastinate_fetch_job_v2(character varying[],bigint)",
    "procrastinate_finish_job_v1(bigint,procrastinate_job_status,boolean)",
    "procrastinate_retry_job_v2(bigint,timestamptz,integer,character varying,character varying)",
    "procrastinate_register_worker_v1()",
    "procrastinate_update_heartbeat_v1(bigint)",
)
# A role is a machine: what it writes is under its own name, whatever it says. Everybody who may
# connect to the database may work; its owner alone may queue.
_TABLES: Final = f"""
    CREATE TABLE ivhl_schema AS SELECT {_VERSION} AS version;
    CREATE TABLE ivhl_workers (
        id bigint PRIMARY KEY REFERENCES procrastinate_workers ON DELETE CASCADE,
        machine text NOT NULL, serves text[] NOT NULL, since timestamptz NOT NULL DEFAULT now());
    CREATE TABLE ivhl_tries (
        id bigserial PRIMARY KEY, job bigint REFERENCES procrastinate_jobs ON DELETE CASCADE,
        worker bigint, machine text NOT NULL, began timestamptz NOT NULL DEFAULT now(),
        ended timestamptz,
        said text NOT NULL DEFAULT '', found text, signature text, imported timestamptz);
    CREATE INDEX ON ivhl_tries (job);
    CREATE INDEX ON ivhl_tries (machine, id) WHERE job IS NULL;
    CREATE FUNCTION ivhl_own() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN NEW.machine := session_user; RETURN NEW; END $$;
    CREATE FUNCTION ivhl_owns(name regclass) RETURNS boolean LANGUAGE sql AS $$
        SELECT pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = name), 'USAGE')
        $$;
    CREATE FUNCTION ivhl_begun() RETURNS trigger
        LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
        BEGIN
            IF (NEW.found IS NOT NULL OR TG_OP = 'INSERT' AND NEW.job IS NOT NULL)
                AND NOT ivhl_owns(TG_RELID) AND NOT EXISTS (
                SELECT FROM procrastinate_jobs AS job
                JOIN ivhl_workers ON worker_id = ivhl_workers.id
                WHERE job.id = NEW.job AND status = 'doing' AND worker_id = NEW.worker
                AND machine = session_user) THEN
                RAISE insufficient_privilege USING MESSAGE = 'this job is another worker''s';
            END IF;
            RETURN NEW;
        END $$;
    CREATE FUNCTION ivhl_kept() RETURNS trigger
        LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
        BEGIN
            IF ivhl_owns(TG_RELID) THEN RETURN NEW; END IF;
            IF OLD.ended IS NOT NULL THEN
                RAISE insufficient_privilege USING MESSAGE = 'a try that has ended stays as it is';
            ELSIF OLD.machine <> session_user THEN
                RAISE insufficient_privilege USING MESSAGE = 'this try is another machine''s';
            END IF;
            RETURN NEW;
        END $$;
    CREATE FUNCTION ivhl_done() RETURNS trigger
        LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
        BEGIN
            IF OLD.status = 'succeeded' AND NOT ivhl_owns(TG_RELID)
                AND (NEW.status <> OLD.status OR NEW.worker_id <> OLD.worker_id) THEN
                RAISE insufficient_privilege USING MESSAGE = 'a job that is done stays as it is';
            END IF;
            RETURN NEW;
        END $$;
    CREATE TRIGGER begun BEFORE INSERT OR UPDATE ON ivhl_tries
        FOR EACH ROW EXECUTE FUNCTION ivhl_begun();
    CREATE TRIGGER done BEFORE UPDATE ON procrastinate_jobs
        FOR EACH ROW EXECUTE FUNCTION ivhl_done();
    CREATE TRIGGER own BEFORE INSERT ON ivhl_tries FOR EACH ROW EXECUTE FUNCTION ivhl_own();
    CREATE TRIGGER kept BEFORE UPDATE ON ivhl_tries FOR EACH ROW EXECUTE FUNCTION ivhl_kept();
    CREATE TRIGGER own BEFORE INSERT ON ivhl_workers FOR EACH ROW EXECUTE FUNCTION ivhl_own();
    GRANT SELECT ON ivhl_schema TO PUBLIC;
    GRANT SELECT, INSERT ON ivhl_workers TO PUBLIC;
    GRANT SELECT, INSERT, UPDATE, DELETE ON procrastinate_workers TO PUBLIC;
    GRANT SELECT, INSERT (job, worker, ended, said), UPDATE (ended, said, found, signature)
        ON ivhl_tries TO PUBLIC;
    GRANT SELECT, UPDATE (status, worker_id, attempts, abort_requested, scheduled_at, priority,
        queue_name, lock) ON procrastinate_jobs TO PUBLIC;
    GRANT SELECT, INSERT ON procrastinate_events TO PUBLIC;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO PUBLIC;
"""  # noqa: S608  (a constant)


class FleetDatabase:
    """A connection to the database; not for several threads.

    Args:
        address: ``postgresql://MACHINE:TOKEN@HOST/DATABASE``.
        tell: Called with each line for the person who waits.
        lease_s: Likewise ``LEASE_S``, shorter in tests.

    Attributes:
        machine: The role, the name of this machine in the fleet.
        given_up: Whether nobody waits for the database any more.

    Raises:
        SpecError: If the database cannot be reached; later, if the role may not do what is asked.
    """

    def __init__(
        self, address: str, tell: Callable[[str], object], lease_s: float = LEASE_S
    ) -> None:
        self._address, self._tell, self.lease_s = address, tell, lease_s
        self.given_up: Callable[[], bool] = lambda: False
        try:
            import psycopg  # noqa: PLC0415  (an extra)
        except ImportError as error:
            raise SpecError(f"a queue needs the package psycopg: {error}", hint=_EXTRA) from error
        self._psycopg = psycopg
        try:
            # The message leaves a malformed address out: the address may hold the token.
            psycopg.conninfo.conninfo_to_dict(address)
            is_address = urlsplit(address).scheme in ("postgresql", "postgres")
            # What follows an @ in a token would be told as the name of the host.
            is_address = is_address and "@" not in address.partition("@")[2]
        except (ValueError, psycopg.Error):
            is_address = False
        if not is_address:
            raise SpecError("the address of the queue is malformed", hint=_ADDRESS)
        try:
            self._connection = self._connect()
        except psycopg.Error as error:
            raise SpecError(
                f"the queue cannot be reached: {_reason(error)}", hint=_ADDRESS
            ) from error
        self.machine = str(self.one("SELECT session_user AS name")["name"])

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _connect(self) -> Connection[dict[str, Any]]:
        """Connect, with limits within which a link that passes nothing on is noticed."""
        from psycopg.rows import dict_row  # noqa: PLC0415  (an extra)

        return self._psycopg.connect(
            self._address,
            connect_timeout=10,
            tcp_user_timeout=int(250 * self.lease_s),
            keepalives_idle=max(1, int(self.lease_s / 8)),
            keepalives_interval=max(1, int(self.lease_s / 16)),
            application_name="ivhl",
            row_factory=dict_row,
        )

    def patiently(self, question: Callable[[Connection[dict[str, Any]]], T]) -> T:
        """Ask in a transaction, and again with a new connection until the database has answered.

        Raises:
            SpecError: If the database refuses, or has not answered when nobody waits any more.
        """
        pause, lost = 0.1, ""
        while True:
            try:
                with self._connection.transaction():
                    found = question(self._connection)
            except self._psycopg.errors.InsufficientPrivilege as error:
                raise SpecError(
                    f"{self.machine} may not do that: {_reason(error)}",
                    hint="use the address of the database's owner",
                ) from error
            except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as error:
                if self.given_up():
                    raise SpecError("the queue did not answer", hint=_ADDRESS) from error
                lost = self._told(lost, error)
                time.sleep(pause)
                pause = min(2 * pause, 5.0)
                try:
                    self._connection.close()
                    self._connection = self._connect()
                except self._psycopg.Error as again:
                    lost = self._told(lost, again)
            except self._psycopg.Error as error:
                raise SpecError(
                    f"the database refuses: {_reason(error)}",
                    hint="use a separate database in UTF-8: docs/fleet.md",
                ) from error
            else:
                if lost:
                    self._tell("the queue answers again")
                return found

    def _told(self, before: str, error: Error) -> str:
        """Tell why there is no answer, if that is another reason than before; return it."""
        reason = _reason(error)
        if reason != before:
            self._tell(f"the queue does not answer, trying again: {reason}")
        return reason

    def rows(self, query: str, **values: object) -> list[dict[str, Any]]:
        """Return the rows of a question."""
        return self.patiently(lambda it: it.execute(query, values).fetchall())

    def do(self, query: str, **values: object) -> None:
        """Do what has no rows."""
        self.patiently(lambda it: it.execute(query, values))

    def one(self, query: str, **values: object) -> dict[str, Any]:
        """Return the only row of a question."""
        return self.rows(query, **values)[0]

    def is_installed(self) -> bool:
        """Return whether the database has tables of ivhl."""
        return self.one("SELECT to_regclass('ivhl_schema') AS name")["name"] is not None

    def _check_server(self) -> None:
        number = int(self.one("SELECT current_setting('server_version_num') AS it")["it"])
        if number < _OLDEST * 10_000:
            raise SpecError(
                f"the queue needs PostgreSQL {_OLDEST} or newer (got {number // 10_000})",
                hint="use a newer server: older servers let machines make functions for the owner",
            )

    def check(self) -> None:
        """Check that the database has the tables of this ivhl.

        Raises:
            SpecError: If it has none, or those of another version.
        """
        self._check_server()
        if not self.is_installed():
            raise SpecError(
                "this database has no queue of ivhl",
                hint="its owner makes the tables: `ivhl fleet submit`",
            )
        version = self.one("SELECT max(version) AS number FROM ivhl_schema")["number"]
        if version != _VERSION:
            raise SpecError(
                f"the queue has tables of version {version}, this ivhl needs {_VERSION}",
                hint="install the ivhl of the fleet, or use a new database",
            )
        for name in _FUNCTIONS:
            if self.one("SELECT to_regprocedure(%(name)s) AS it", name=name)["it"] is None:
                raise SpecError(
                    f"the queue lacks procrastinate's function {name.partition('(')[0]}",
                    hint="apply procrastinate's migrations to the database, or use a new one",
                )

    def install(self) -> None:
        """Make the tables if there are none.

        Raises:
            SpecError: As ``check``, and if this role may not make them.
        """
        try:
            from procrastinate.schema import SchemaManager  # noqa: PLC0415  (an extra)
        except ImportError as error:
            raise SpecError(f"a queue needs procrastinate: {error}", hint=_EXTRA) from error
        self._check_server()

        def make(connection: Connection[dict[str, Any]]) -> None:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (COORDINATORS,))
            found = connection.execute("SELECT to_regclass('ivhl_schema') AS name").fetchone()
            if found is not None and found["name"] is None:
                connection.execute(SchemaManager.get_schema())
                connection.execute(_TABLES)

        self.patiently(make)
        self.check()


def _reason(error: Any) -> str:  # noqa: ANN401  (psycopg's, which is an extra)
    """Return what the database says, in a line."""
    text = str(error.diag.message_primary or error)
    return printable(" ".join(text.split()))
