"""The study of queues stays runnable; ``nox -s fleet`` runs it.

By hand, with PostgreSQL's programs: install the extra ``fleet`` and pytest, then
``python -m pytest tests/fleet``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from studies.queues.database import Database

pytest.importorskip("procrastinate", reason="the extra `fleet` is not installed")
from studies.queues import __main__ as study
from studies.queues.faults import FAULTS
from studies.queues.fleet import import_all, overlapping

KILL = "kill -9 of a worker"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill one worker over 20 jobs."""
    monkeypatch.setitem(FAULTS, KILL, replace(FAULTS[KILL], times=1, jobs=20))
    monkeypatch.setattr(study, "_PATIENCE_S", 15)


def test_each_job_has_one_record_after_a_worker_was_killed(
    database: Database, tmp_path: Path
) -> None:
    row = study.run("ivhl", KILL, database, tmp_path / "ivhl")
    assert row["times"] == 1
    wrong = ("lost", "imported", "overlapping", "claimed", "aside", "hands")
    assert {name: row[name] for name in wrong} == dict.fromkeys(wrong, 0)


@pytest.mark.full
def test_the_library_alone_leaves_the_job_of_a_killed_worker_claimed(
    database: Database, tmp_path: Path
) -> None:
    row = study.run("procrastinate_as_it_comes", KILL, database, tmp_path / "plain")
    assert (row["times"], row["claimed"], row["hands"]) == (1, 1, 1)


def record(case: str, attempt: int, start: float, end: float) -> dict[str, str | int | float]:
    return {"case": case, "attempt": attempt, "machine": "m", "start": start, "end": end}


def test_what_the_table_counts_is_found() -> None:
    records = [record("a", 1, 0.0, 2.0), record("b", 2, 1.0, 3.0), record("a", 3, 3.0, 4.0)]
    assert overlapping(records) == 1
    assert overlapping(records[1:]) == 0
    assert import_all(records) == records[1:]
