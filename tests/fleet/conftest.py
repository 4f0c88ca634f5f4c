"""A PostgreSQL of our own, with a role for each machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from studies.queues.database import Database


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
    """Start a PostgreSQL, in which roles `lab-1` and `lab-2` are machines."""
    pytest.importorskip("psycopg", reason="the extra `fleet` is not installed")
    from studies.queues.database import Database, program  # noqa: PLC0415  (an extra)

    missing = [name for name in ("initdb", "postgres") if program(name) is None]
    if missing:
        pytest.skip(f"no PostgreSQL on this machine: {', '.join(missing)} not found")
    server = Database()
    try:
        server.start()
        with server.connect("postgres") as connection:
            connection.execute('CREATE ROLE "lab-1" LOGIN; CREATE ROLE "lab-2" LOGIN')
        yield server
    finally:
        server.stop()
