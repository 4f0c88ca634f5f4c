"""The queue of a fleet: who may do what, whose result counts, and what an import refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ivhl.bench.request import Selection
from ivhl.cli import app
from ivhl.errors import IvhlError, LockError, ResultsError, SpecError
from ivhl.fleet.coordinate import cells, results, retry, set_aside_jobs, submit, workers
from ivhl.fleet.keys import SIGNERS, sign
from ivhl.fleet.observed import control, import_queue, jobs_of
from ivhl.fleet.queue import FleetJob, FleetQueue, Need, need_of
from ivhl.fleet.timings import time_cases, timing_jobs
from ivhl.fleet.worker import FleetWorker
from ivhl.git import find_commit
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load_project
from ivhl.matrix.spec import CellSpec
from ivhl.measure.alone import only_writer
from ivhl.observatory.observing import Observatory, name_of
from ivhl.observatory.record import read_observed
from ivhl.observatory.rows import read_rows
from ivhl.records.reader import read_record
from ivhl.script.cells import SHIPPED
from ivhl.workload import load_workloads
from studies.schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ivhl.observatory.record import Observed
    from ivhl.observatory.rows import Library
    from ivhl.workload import Case
    from studies.queues.database import Database

pytest.importorskip("psycopg", reason="the extra `fleet` is not installed")

ROOT = Path(__file__).parents[2]
NEED = Need("py3.12-torch2.15.0", "cpu", "x86_64", "6")
LEASE_S = 2.0


def job(name: str, **more: Any) -> FleetJob:  # noqa: ANN401
    return replace(FleetJob(NEED, name, (), None, 5.0, 0), **more)


@pytest.fixture
def address(database: Database) -> Callable[[str], str]:
    """Return the address of a machine, to an empty database."""
    database.renew()
    return lambda role: database.url().replace("//postgres@", f"//{role}@")


@pytest.fixture
def queue(address: Callable[[str], str]) -> Iterator[FleetQueue]:
    with FleetQueue(address("postgres"), print, LEASE_S) as opened:
        opened.install()
        yield opened


class Machine:
    """A machine that asks the queue by hand."""

    def __init__(self, address: str) -> None:
        self.queue = FleetQueue(address, print, LEASE_S)
        self.worker = self.queue.register([NEED])

    def claim(self, *needs: Need) -> Any:  # noqa: ANN401
        """Claim a job."""
        return self.queue.claim(self.worker, needs or [NEED])

    def end(self, claimed: Any, found: str | None = "{}", said: str = "") -> bool:  # noqa: ANN401
        """End a try."""
        return self.queue.end(self.worker, claimed, found, said)


@pytest.fixture
def machines(
    queue: FleetQueue, address: Callable[[str], str]
) -> Iterator[tuple[Machine, Machine]]:
    del queue
    both = Machine(address("lab-1")), Machine(address("lab-2"))
    yield both
    for one in both:
        one.queue.close()


def test_each_job_is_queued_once_and_comes_in_the_order_of_worth(
    queue: FleetQueue, machines: tuple[Machine, Machine]
) -> None:
    jobs = [job("second", worth=1), job("third"), job("first", worth=2)]
    assert submit(queue, jobs) == 3
    assert submit(queue, [*jobs, job("fourth", worth=-1)]) == 1
    seen = []
    while claimed := machines[0].claim():
        seen.append(claimed.job.name)
        assert machines[0].end(claimed)
    assert seen == ["first", "second", "third", "fourth"]
    assert submit(queue, jobs) == 0, "what is done is not queued again"
    assert cells(queue) == [
        {
            "cell": NEED.cell,
            "todo": 0,
            "doing": 0,
            "done": 4,
            "imported": 0,
            "failed": 0,
            "core_s": 0,
        }
    ]


def test_a_job_waits_for_a_machine_that_serves_its_need(
    queue: FleetQueue, machines: tuple[Machine, Machine]
) -> None:
    submit(queue, [job("one", need=NEED._replace(instrument="7"))])
    assert machines[0].claim() is None
    assert machines[0].claim(NEED, NEED._replace(instrument="7")) is not None


def test_a_machine_writes_under_its_own_name_alone(
    queue: FleetQueue, machines: tuple[Machine, Machine]
) -> None:
    submit(queue, [job("one")])
    claimed = machines[0].claim()
    first, second = machines
    own = "INSERT INTO ivhl_tries (job, worker) VALUES (%(job)s, %(worker)s) RETURNING machine"
    values = {"job": claimed.id, "id": claimed.attempt, "worker": first.worker}
    assert first.queue.one(own, **values) == {"machine": "lab-1"}
    for forbidden in (
        own,
        "INSERT INTO ivhl_tries (job, worker) SELECT %(job)s, max(id) FROM ivhl_workers",
        "INSERT INTO ivhl_tries (job) VALUES (%(job)s)",
        "INSERT INTO ivhl_tries (job, machine) VALUES (%(job)s, 'lab-1')",
        "UPDATE ivhl_tries SET ended = now(), said = 'lost' WHERE id = %(id)s",
        "INSERT INTO ivhl_tries (job, found) VALUES (%(job)s, 'x')",
        "UPDATE ivhl_tries SET found = 'x' WHERE id = %(id)s",
        "UPDATE ivhl_tries SET imported = now() WHERE id = %(id)s",
        "UPDATE ivhl_tries SET job = NULL WHERE id = %(id)s",
        "UPDATE procrastinate_jobs SET args = '{}' WHERE id = %(job)s",
        "DELETE FROM procrastinate_jobs WHERE id = %(job)s",
        "UPDATE ivhl_workers SET since = since",
        "DELETE FROM ivhl_workers",
    ):
        with pytest.raises(SpecError, match="lab-2 may not"):
            second.queue.do(forbidden, **values)
    # A try that begins while the job is stolen is no place for a result after it.
    for worker in (second.worker, first.worker):
        second.queue.do("UPDATE procrastinate_jobs SET worker_id = %(worker)s", worker=worker)
        if worker == second.worker:
            second.queue.do(own, job=claimed.id, worker=worker)
    assert first.end(claimed, "found")
    for queue_of in (first.queue, second.queue):
        with pytest.raises(SpecError, match="this job is another worker's"):
            queue_of.do("UPDATE ivhl_tries SET found = 'x' WHERE ended IS NULL")
    first.queue.control("it differs")
    for queue_of in (first.queue, second.queue):
        for done in (
            "UPDATE procrastinate_jobs SET status = 'doing'",
            "UPDATE procrastinate_jobs SET worker_id = %(worker)s",
        ):
            with pytest.raises(SpecError, match="a job that is done"):
                queue_of.do(done, worker=second.worker)
        queue_of.do("UPDATE procrastinate_jobs SET worker_id = NULL")
        queue.rows(
            "UPDATE procrastinate_jobs SET worker_id = %(id)s RETURNING id", id=first.worker
        )
    for forbidden, why in (
        ("UPDATE ivhl_tries SET found = 'better' WHERE id = %(id)s", "this job is another"),
        ("UPDATE ivhl_tries SET said = '' WHERE id = %(id)s", "this job is another"),
        ("UPDATE ivhl_tries SET said = '' WHERE job IS NULL", "a try that has ended"),
    ):
        for queue_of in (first.queue, second.queue):
            with pytest.raises(SpecError, match=why):
                queue_of.do(forbidden, **values)
    with pytest.raises(SpecError, match="lab-1 may not"):
        submit(first.queue, [job("two")])
    with pytest.raises(SpecError, match="lab-1 may not"):
        retry(first.queue, [])


def test_who_has_given_up_is_told_that_the_database_is_away(
    queue: FleetQueue, address: Callable[[str], str]
) -> None:
    queue._address = f"{address('postgres')}-gone"
    queue._connection.close()
    queue.leave(1)
    with pytest.raises(SpecError, match="the queue did not answer"):
        queue.one("SELECT 1")


def test_who_cannot_connect_is_told_in_a_line(database: Database) -> None:
    url = database.url()
    for wrong, why in (
        (url.replace("postgres@", "nobody:old@"), "cannot be reached"),
        (f"{url}x", "cannot be reached"),
        (f" {url}".replace("postgres@", "lab-1:old@"), "malformed"),
        (url.replace("postgresql://postgres@", "mysql://lab-1:old@"), "malformed"),
        ("host=127.0.0.1 password=old", "malformed"),
        ("lab-1:old@127.0.0.1/fleet", "malformed"),
        ("postgresql://lab-1:old@[::1/fleet", "malformed"),
        ("postgresql://lab-1:o%ld@127.0.0.1/fleet", "malformed"),
        ("postgresql://lab-1:p@old/w#rd@127.0.0.1/fleet", "malformed"),
    ):
        with pytest.raises(SpecError, match=why) as raised:
            FleetQueue(wrong, print)
        assert "\n" not in str(raised.value)
        assert "old" not in str(raised.value)


def test_tables_of_nobody_and_of_another_version_are_named(
    address: Callable[[str], str], database: Database
) -> None:
    with FleetQueue(address("postgres"), print) as queue:
        with pytest.raises(SpecError, match="no queue of ivhl"):
            queue.check()
        queue.install()
        queue.install()
        with database.connect() as owner:
            owner.execute("ALTER FUNCTION procrastinate_retry_job_v2 RENAME TO other")
        with pytest.raises(SpecError, match="procrastinate_retry_job_v2"):
            queue.check()
        queue.rows("UPDATE ivhl_schema SET version = 9 RETURNING version")
        with pytest.raises(SpecError, match="version 9"):
            queue.check()


def test_a_claim_whose_answer_got_lost_is_the_same_try(
    queue: FleetQueue, machines: tuple[Machine, Machine]
) -> None:
    submit(queue, [job("one")])
    claimed = machines[0].claim()
    assert machines[0].claim() == claimed
    assert machines[1].claim() is None
    assert machines[0].end(claimed, "found")
    assert machines[0].end(claimed, "found"), "the answer of the first end got lost"


def stop_beating(queue: FleetQueue, machine: Machine) -> None:
    """Make a worker as old as its lease, and let the database's start be older."""
    queue.rows(
        "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'"
        " WHERE id = %(id)s RETURNING id",
        id=machine.worker,
    )
    time.sleep(LEASE_S)


def test_a_late_result_is_not_kept(queue: FleetQueue, machines: tuple[Machine, Machine]) -> None:
    submit(queue, [job("one")])
    late = machines[0].claim()
    stop_beating(queue, machines[0])
    assert machines[1].queue.beat(machines[1].worker)
    assert machines[0].claim() is None, "another machine is there to try"
    again = machines[1].claim()
    assert again.id == late.id
    assert again.attempt > late.attempt
    assert not machines[0].end(late, "late")
    assert machines[1].end(again, "in time")
    assert [one["found"] for one in results(queue)] == ["in time"]


def test_a_job_that_ends_two_machines_is_set_aside_until_somebody_puts_it_back(
    queue: FleetQueue, machines: tuple[Machine, Machine]
) -> None:
    submit(queue, [job("one"), job("two", worth=-1)])
    machines[0].end(machines[0].claim(), None, "no room\x1b[2J")
    assert machines[0].claim().job.name == "two"
    claimed = machines[1].claim()
    assert claimed.job.name == "one"
    stop_beating(queue, machines[1])
    machines[0].queue.beat(machines[0].worker)
    (aside,) = set_aside_jobs(queue)
    assert aside["said"] == [
        "lab-1: no room\\x1b[2J",
        "lab-2: its worker ended, or lost its connection",
    ]
    assert retry(queue, ["two"]) == 0
    assert retry(queue, ["one"]) == 1
    assert set_aside_jobs(queue) == []
    machines[0].end(machines[0].claim())  # two
    assert machines[0].claim().job.name == "one"


def test_what_a_machine_says_is_read_in_part(
    queue: FleetQueue, machines: tuple[Machine, Machine]
) -> None:
    submit(queue, [job("one")])
    for machine in machines:
        machine.end(machine.claim(), None)
    queue.rows("UPDATE ivhl_tries SET said = repeat('x', 100000) RETURNING id")
    (aside,) = set_aside_jobs(queue)
    assert max(map(len, aside["said"])) < 5000


def test_the_only_machine_tries_again(
    queue: FleetQueue, machines: tuple[Machine, Machine]
) -> None:
    submit(queue, [job("one")])
    machines[1].queue.leave(machines[1].worker)
    machines[0].end(machines[0].claim(), None, "no")
    assert machines[0].claim().job.name == "one"


def run_worker(address: str, tmp_path: Path, **more: Any) -> FleetWorker:  # noqa: ANN401
    does: dict[str, Any] = {
        "measure": lambda job, attempt: f"{job.name} {attempt}",
        "sign": lambda _: None,
        "control": lambda: "",
        "busy": lambda: "",
        "places": [tmp_path / "place"],
        "turn": tmp_path / "turn",
        "tell": print,
    }
    needs = more.pop("needs", [NEED])
    return FleetWorker(address, needs, lease_s=LEASE_S, pause_s=0.05, **does | more)


def finish(queue: FleetQueue, working: list[FleetWorker], jobs: int) -> None:
    """Let workers work side by side until so many jobs are done."""
    threads = [threading.Thread(target=one.work) for one in working]
    for thread in threads:
        thread.start()
    for _ in range(200):
        if len(results(queue)) == jobs:
            break
        time.sleep(0.1)
    for one in working:
        one.stop()
    for thread in threads:
        thread.join()


def test_a_worker_drains_and_beats_until_its_job_has_ended(
    queue: FleetQueue, address: Callable[[str], str], tmp_path: Path
) -> None:
    began = threading.Event()

    def measure(_: FleetJob, attempt: int) -> str:
        began.set()
        time.sleep(2 * LEASE_S)
        return str(attempt)

    submit(queue, [job("one"), job("two")])
    worker = run_worker(address("lab-1"), tmp_path, measure=measure)
    thread = threading.Thread(target=worker.work)
    thread.start()
    assert began.wait(10)
    worker.stop()
    other = Machine(address("lab-2"))
    while thread.is_alive():
        other.queue.beat(other.worker)  # puts back what is not alive
        time.sleep(0.2)
    other.queue.close()
    assert len(results(queue)) == 1
    assert [one["machine"] for one in workers(queue)] == ["lab-2"]
    assert cells(queue)[0]["todo"] == 1


def test_an_error_puts_a_job_back_and_a_machine_without_room_takes_none(
    queue: FleetQueue, address: Callable[[str], str], tmp_path: Path
) -> None:
    def measure(job: FleetJob, _: int) -> str:
        if job.name == "bad":
            raise ResultsError("no", hint="try again")
        worker.stop()
        return ""

    rooms = iter(["the disk is full"] * 3)
    told: list[object] = []
    submit(queue, [job("bad", worth=1), job("good")])
    worker = run_worker(
        address("lab-1"),
        tmp_path,
        measure=measure,
        busy=lambda: next(rooms, ""),
        tell=told.append,
    )
    worker.work()
    assert told.count("waiting: the disk is full") == 1
    (aside,) = set_aside_jobs(queue)  # twice by the only machine
    assert aside["said"] == ["lab-1: no; try again"] * 2
    assert len(results(queue)) == 1


def test_workers_of_a_machine_have_as_many_jobs_as_it_has_places(
    queue: FleetQueue, address: Callable[[str], str], tmp_path: Path
) -> None:
    at_once, most = 0, 0
    lock = threading.Lock()

    def measure(_: FleetJob, __: int) -> str:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.02)
        with lock:
            at_once -= 1
        return ""

    submit(queue, [job(str(number)) for number in range(20)])
    three = [run_worker(address("lab-1"), tmp_path, measure=measure) for _ in range(3)]
    finish(queue, three, 20)
    assert (len(results(queue)), most) == (20, 1)


def test_a_job_that_is_alone_has_its_machine_for_itself(
    queue: FleetQueue, address: Callable[[str], str], tmp_path: Path
) -> None:
    now: list[str] = []
    beside: dict[str, list[str]] = {}

    def measure(job: FleetJob, _: int) -> str:
        now.append(job.name)
        for _ in range(10):
            time.sleep(0.01)
            beside.setdefault(job.name, []).extend(now)
        now.remove(job.name)
        return ""

    alone = NEED._replace(alone=True)
    submit(queue, [job(str(number), worth=number) for number in range(20)])
    submit(queue, [job("a", worth=15, need=alone), job("b", worth=5, need=alone)])
    places = [tmp_path / name for name in ("first", "second")]
    three = [
        run_worker(address("lab-1"), tmp_path, needs=[NEED, alone], measure=measure, places=places)
        for _ in range(3)
    ]
    finish(queue, three, 22)
    assert len(results(queue)) == 22
    assert ({*beside["a"]}, {*beside["b"]}) == ({"a"}, {"b"})
    assert max(len({*others}) for others in beside.values()) > 1, "others run side by side"
    order = list(beside)
    assert order.index("19") < order.index("a") < order.index("10"), "in its turn by worth"


def test_a_job_of_a_machine_waits_for_it_and_is_tried_there_again(
    queue: FleetQueue, machines: tuple[Machine, Machine]
) -> None:
    own = NEED._replace(alone=True, machine="lab-1")
    first, second = machines
    submit(queue, [job("one", need=own)])
    assert first.claim(NEED._replace(alone=True)) is None
    serves = "UPDATE ivhl_workers SET serves = %(serves)s WHERE id = %(id)s RETURNING id"
    queue.rows(serves, serves=[str(own), str(NEED)], id=first.worker)
    assert not second.queue.is_alone_first([NEED])
    for _ in range(2):
        assert first.queue.is_alone_first([NEED, own])
        claimed = first.claim(own)
        assert claimed.job.need == own
        assert first.end(claimed, None, "no")
    assert len(set_aside_jobs(queue)) == 1


# What comes home, of a real row in a scratch checkout.


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with the table of the observatory and records of one library."""
    root = tmp_path / "checkout"
    (root / "observatory" / "records").mkdir(parents=True)
    for name in ("libraries.toml", "functions", "locks"):
        source = ROOT / "observatory" / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, root / "observatory" / name)
    return root


@pytest.fixture
def result(checkout: Path) -> dict[str, Any]:
    """Return what a worker hands in: a committed record under the name of its machine."""
    records = read_observed(ROOT / "observatory" / "records", print).values()
    rows = {q.row for one in read_rows(checkout / "observatory") for q in one.questions}
    found = next(one for one in records if one.library == "einops" and one.row in rows)
    record = found.model_dump(by_alias=True) | {"machine": "lab-1"}
    needs = Need(found.cell, "cpu", "x86_64", found.instrument)
    locks = {}
    if found.overlay:
        lock = (checkout / "observatory" / "locks" / f"{found.overlay}.txt").read_text()
        locks[found.overlay] = lock
    asked = job("einops", need=needs, rows=(found.row,), lock=found.lock)
    return {"record": record, "locks": locks, "job": asked}


def hand_in(
    queue: FleetQueue,
    machine: Machine,
    result: dict[str, Any],
    *controls: str,
    key: Path | None = None,
) -> None:
    before, *after = controls
    machine.queue.control(before)
    # Another worth makes no other job: of several, each is put back and set to done by hand.
    queue.do("UPDATE procrastinate_jobs SET queueing_lock = NULL")
    submit(queue, [result["job"]])
    claimed = machine.claim(result["job"].need)
    attempt = result.get("attempt", claimed.attempt)
    records = result.get("lines", [json.dumps(result["record"])] * result.get("times", 1))
    text = json.dumps({"attempt": attempt, "records": records, "locks": result["locks"]})
    signature = sign(text, key) if key else None
    assert machine.queue.end(machine.worker, claimed, text, signature=signature)
    for said in after:
        machine.queue.control(said)


def test_records_come_home_once(
    queue: FleetQueue, machines: tuple[Machine, Machine], checkout: Path, result: dict[str, Any]
) -> None:
    hand_in(queue, machines[0], result, "", "")
    imported = import_queue(checkout, queue)
    assert (imported.new.total(), imported.refused) == (1, ())
    kept = (checkout / "observatory" / "records" / "einops.jsonl").read_text()
    assert json.loads(kept) == json.loads(json.dumps(result["record"]))
    assert import_queue(checkout, queue).new.total() == 0
    # Killed between the record and the note that it is here.
    queue.rows("UPDATE ivhl_tries SET imported = NULL RETURNING id")
    assert import_queue(checkout, queue).had.total() == 1
    assert (checkout / "observatory" / "records" / "einops.jsonl").read_text() == kept
    # The checkout is lost after its import.
    (checkout / "observatory" / "records" / "einops.jsonl").unlink()
    assert import_queue(checkout, queue).new.total() == 0
    assert import_queue(checkout, queue, again=True).new.total() == 1
    # Both would append what neither has seen.
    with only_writer(checkout), pytest.raises(ResultsError, match="another ivhl is writing"):
        import_queue(checkout, queue)


def test_a_job_that_is_imported_has_no_second_result(
    queue: FleetQueue, machines: tuple[Machine, Machine], checkout: Path, result: dict[str, Any]
) -> None:
    hand_in(queue, machines[0], result, "", "")
    assert import_queue(checkout, queue).new.total() == 1
    (home,) = results(queue, again=True)
    later = "INSERT INTO ivhl_tries (job, found) VALUES (%(job)s, %(found)s) RETURNING id"
    queue.rows(later, job=home["job"], found=home["found"])
    assert results(queue) == []
    assert [one["id"] for one in results(queue, again=True)] == [home["id"]]


WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "of another machine": ({"machine": "lab-2"}, ("",), "machine: must be lab-1"),
    "of another row": ({"row": "0" * 64}, ("",), "records: must answer once each"),
    "of another library": ({"library": "timm"}, ("",), "must be those of the row"),
    "of another case": ({"case": "no/../such"}, ("",), "must be those of the row"),
    "of another cell": (
        {"cell": "py3.12-torch2.2.2", "python": "3.12", "torch": "2.2.2"},
        ("",),
        "cell: must be",
    ),
    "of another lock": ({"lock": "0" * 64}, ("",), "lock: must be"),
    "of another instrument": ({"instrument": "0"}, ("",), "instrument: must be"),
    "of the future": ({"at": "2099-01-01T00:00:00+00:00"}, ("",), "at: must not"),
    "without the lock of its overlay": ({"overlay": "0" * 16}, ("",), "overlay: must come"),
    "no record": ({"status": "fine"}, ("",), "status"),
    "with a key of NUL": ({"\x00": 1}, ("",), "\\x00"),
    "of a machine that differs": ({}, ("einops: other",), "einops: other"),
    "of a machine that differs afterwards": ({}, ("", "einops: other"), "einops: other"),
}
OF_RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "of another try": ({"attempt": 10_000}, "attempt: must be"),
    "of a try without end": ({"attempt": float("inf")}, "attempt: must be"),
    "with no record": ({"times": 0}, "records: must answer once each"),
    "with a record twice": ({"times": 2}, "records: must answer once each"),
}


def check_refused(queue: FleetQueue, checkout: Path, rule: str) -> None:
    imported = import_queue(checkout, queue)
    assert imported.new.total() == 0
    (refused,) = imported.refused
    assert rule in refused.rule
    assert not list((checkout / "observatory" / "records").iterdir())
    assert len(set_aside_jobs(queue)) == 1
    assert retry(queue, []) == 1


@pytest.mark.parametrize("name", [*WRONG, *OF_RESULTS])
def test_what_breaks_a_rule_is_refused_and_its_job_set_aside(
    name: str,
    queue: FleetQueue,
    machines: tuple[Machine, Machine],
    checkout: Path,
    result: dict[str, Any],
) -> None:
    changed, controls, rule = WRONG.get(name, ({}, ("",), ""))
    result["record"] |= changed
    if name in OF_RESULTS:
        changed, rule = OF_RESULTS[name]
        result |= changed
    hand_in(queue, machines[0], result, *controls)
    check_refused(queue, checkout, rule)


def test_a_lock_that_names_a_file_is_refused(
    queue: FleetQueue, machines: tuple[Machine, Machine], checkout: Path, result: dict[str, Any]
) -> None:
    lock = "einops @ file:///tmp/evil.whl --hash=sha256:" + "0" * 64
    name = name_of(lock.encode())
    result["record"]["overlay"], result["locks"] = name, {name: lock}
    hand_in(queue, machines[0], result, "")
    check_refused(queue, checkout, "overlay: must pin")


def test_a_result_of_another_checkout_stays_in_the_queue(
    queue: FleetQueue, machines: tuple[Machine, Machine], checkout: Path, result: dict[str, Any]
) -> None:
    hand_in(queue, machines[0], result, "")
    table = checkout / "observatory" / "libraries.toml"
    text = table.read_text()
    table.write_text(
        text.replace("[einops]", '[einops]\nwith = ["numpy<3"]').replace(
            "[einops.cases]",
            '[einops]\nwith = ["numpy<3"]\n[einops.cases]',
            "[einops]\n" not in text,
        )
    )
    (refused,) = import_queue(checkout, queue).refused
    assert "the row of einops differs in this checkout" in refused.rule
    table.write_text(text)
    assert import_queue(checkout, queue).new.total() == 1


def test_a_machine_that_was_never_controlled_is_refused(
    queue: FleetQueue, machines: tuple[Machine, Machine], checkout: Path, result: dict[str, Any]
) -> None:
    hand_in(queue, machines[0], result, "")
    queue.rows("DELETE FROM ivhl_tries WHERE job IS NULL RETURNING id")
    (refused,) = import_queue(checkout, queue).refused
    assert "must repeat known records first" in refused.rule


def test_a_worker_that_does_not_repeat_known_records_ends(
    queue: FleetQueue, address: Callable[[str], str], tmp_path: Path
) -> None:
    submit(queue, [job("one")])
    worker = run_worker(address("lab-1"), tmp_path, control=lambda: "einops works no more")
    with pytest.raises(IvhlError, match="einops works no more"):
        worker.work()
    assert cells(queue)[0]["todo"] == 1
    assert workers(queue) == []


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_with_signers_each_result_must_be_signed_by_its_machine(
    queue: FleetQueue,
    machines: tuple[Machine, Machine],
    checkout: Path,
    result: dict[str, Any],
    tmp_path: Path,
) -> None:
    keys = {name: tmp_path / name for name in ("lab-1", "lab-2")}
    for name, key in keys.items():
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        subprocess.run(words, check=True)
        with (checkout / "observatory" / SIGNERS).open("a") as signers:
            signers.write(f"{name} {key.with_suffix('.pub').read_text()}")
    for by in (None, keys["lab-2"], keys["lab-1"]):
        hand_in(queue, machines[0], result, "", key=by)
    imported = import_queue(checkout, queue)
    assert imported.new.total() == 1
    assert [one.rule[:27] for one in imported.refused] == [
        "must be signed by lab-1, si",
        "must be signed by lab-1: al",
    ]
    with pytest.raises(SpecError, match="no-key"):
        sign("x", tmp_path / "no-key")


def test_the_commands_of_who_coordinates(
    address: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("IVHL_QUEUE", address("postgres"))
    monkeypatch.setattr("ivhl.fleet.queue.INSTRUMENT", 0)  # so that nothing has a record
    monkeypatch.setattr("ivhl.observatory.observing.INSTRUMENT", 0)
    where = ("einops", "timm", "--torch", "2.15.0", "--python", "3.13")

    def told(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["fleet", *words])
        assert done.exit_code == code, done.output
        return done.stdout

    assert "py3.13-torch2.15.0  2" in told("plan", *where)
    assert isinstance(CliRunner().invoke(app, ["fleet", "status"]).exception, SpecError)
    unserved = "no worker can run 1 cell now: py3.13-torch2.15.0\n"
    assert told("submit", *where) == f"2 new jobs, 0 already in the queue\n{unserved}"
    assert told("submit", *where) == f"0 new jobs, 2 already in the queue\n{unserved}"
    with FleetQueue(address("lab-1"), print) as queue:
        needs = [need_of(CellSpec("3.13", "2.15.0"))]
        worker = queue.register(needs)
        assert "no worker can run" not in told("plan", *where)
        for _ in range(2):
            claimed = queue.claim(worker, needs)
            assert claimed is not None
            assert claimed.job.name == "einops", "which is downloaded more"
            assert f"{worker}       lab-1    1 " in told("status")
            queue.end(worker, claimed, None, "[bold]no[/bold]")
    shown = told("status")
    assert "einops in py3.13-torch2.15.0, set aside\n  lab-1: [bold]no[/bold]\n" in shown
    page = tmp_path / "status.html"
    told("status", "--output", str(page))
    assert "<head>\n<title>ivhl fleet status</title>" in page.read_text()
    as_json = told("status", "--json")
    SCHEMAS["fleet-status"].validate_json(as_json)
    assert json.loads(as_json)["cells"][0]["failed"] == 1
    SCHEMAS["fleet-plan"].validate_json(told("plan", *where, "--json"))
    assert told("retry", "einops") == "1 job put back\n"
    assert told("cancel", "einops") == "einops: 1 job removed\n"
    assert told("cancel", "py3.13-torch2.15.0") == "py3.13-torch2.15.0: 1 job removed\n"
    refused = CliRunner().invoke(app, ["fleet", "cancel", "py3.13-torch2.15.0"]).exception
    assert str(refused) == "no job of py3.13-torch2.15.0 waits or was set aside"
    assert json.loads(told("status", "--json"))["cells"] == []
    assert told("submit", *where) == "2 new jobs, 0 already in the queue\n"


# Timings, of a real record in a clone of this repository.


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a clone of this repository with its results."""
    root = tmp_path / "project"
    command = ["git", "clone", "--quiet", "--shared", str(ROOT), str(root)]
    subprocess.run(command, check=True)
    return root


@pytest.fixture
def timed(project: Path) -> dict[str, Any]:
    """Return a job of timings, and a committed record as what a machine hands in for it."""
    path = max((project / "results" / "xeon-2core" / "records").glob("*-py3.12-*.jsonl"))
    records = map(json.loads, path.read_text().splitlines())
    record = next(
        one
        for one in records
        if one["failure"] is None and one["cell"]["lock_sha256"] == lock_of(one, project)
    )
    record["machine"]["name"] = "lab-1"
    need = Need(path.stem.partition("-")[2], "cpu", "x86_64", str(INSTRUMENT), alone=True)
    name = f"{record['workload']}/{record['size']}/{record['variant']}"
    asked = job(
        record["commit"][:8],
        need=need,
        rows=(name,),
        lock=record["cell"]["lock_sha256"],
        commit=record["commit"],
    )
    return {"record": record, "locks": {}, "job": asked}


def lock_of(record: dict[str, Any], project: Path) -> str | None:
    cell = CellSpec(record["cell"]["python"], record["cell"]["torch"])
    return lock_state(project, cell).sha256


def test_timings_come_home_once(
    queue: FleetQueue, machines: tuple[Machine, Machine], project: Path, timed: dict[str, Any]
) -> None:
    shutil.rmtree(project / "observatory")  # which the project of a team lacks
    hand_in(queue, machines[0], timed, "", "")
    imported = import_queue(project, queue)
    assert (imported.new.total(), imported.refused) == (1, ())
    (kept,) = (project / "results" / "lab-1" / "records").iterdir()
    assert read_record(kept.read_bytes()) == read_record(json.dumps(timed["record"]).encode())
    assert import_queue(project, queue).new.total() == 0
    queue.rows("UPDATE ivhl_tries SET imported = NULL RETURNING id")
    assert import_queue(project, queue).had.total() == 1


def test_a_record_that_hides_another_brings_only_itself(
    queue: FleetQueue, machines: tuple[Machine, Machine], project: Path, timed: dict[str, Any]
) -> None:
    """JSON may have line breaks and a key twice; records are read by line."""
    forged = timed["record"] | {"machine": timed["record"]["machine"] | {"name": "lab-2"}}
    text = json.dumps(timed["record"])
    hidden = '{"schema":\n' + json.dumps(forged) + "\n," + text[1:]
    assert read_record(hidden.encode()) == read_record(text.encode())
    hand_in(queue, machines[0], timed | {"lines": [hidden]}, "")
    imported = import_queue(project, queue)
    assert [batch.machine for batch in imported.new] == ["lab-1"]
    assert not (project / "results" / "lab-2").exists()


def test_a_job_of_a_machine_is_not_answered_by_another(
    queue: FleetQueue, machines: tuple[Machine, Machine], project: Path, timed: dict[str, Any]
) -> None:
    need = timed["job"].need._replace(machine="lab-2")
    timed["job"] = replace(timed["job"], need=need)
    hand_in(queue, machines[0], timed, "")
    (refused,) = import_queue(project, queue).refused
    assert "machine: must be lab-2" in refused.rule


def test_a_machine_imports_nothing(
    queue: FleetQueue,
    machines: tuple[Machine, Machine],
    checkout: Path,
    result: dict[str, Any],
) -> None:
    hand_in(queue, machines[0], result, "")
    with pytest.raises(SpecError, match="lab-1 may not import"):
        import_queue(checkout, machines[0].queue)
    assert not list((checkout / "observatory" / "records").iterdir())


WRONG_TIMES: dict[str, tuple[dict[str, Any], str]] = {
    "of another machine": ({"machine": {"name": "lab-2"}}, "machine: must be lab-1"),
    "of another commit": ({"commit": "0" * 40}, "commit: must be"),
    "of another cell": ({"cell": {"python": "3.13", "id": "py3.13-torch{}"}}, "cell: must be"),
    "of another case": ({"size": "other"}, "records: must be those of 1 case"),
    "of the future": ({"recorded_at": "2099-01-01T00:00:00+00:00"}, "must not be in the future"),
    "no record": ({"workload": None}, "workload"),
}


@pytest.mark.parametrize("name", WRONG_TIMES)
def test_timings_that_break_a_rule_are_refused_and_their_job_set_aside(
    name: str,
    queue: FleetQueue,
    machines: tuple[Machine, Machine],
    project: Path,
    timed: dict[str, Any],
) -> None:
    changed, rule = WRONG_TIMES[name]
    for key, value in changed.items():
        if isinstance(value, dict):
            torch = timed["record"]["cell"]["torch"]
            timed["record"][key] |= {name: text.format(torch) for name, text in value.items()}
        else:
            timed["record"][key] = value
    hand_in(queue, machines[0], timed, "")
    imported = import_queue(project, queue)
    assert imported.new.total() == 0
    (refused,) = imported.refused
    assert rule in refused.rule
    assert not (project / "results" / "lab-1").exists()
    assert len(set_aside_jobs(queue)) == 1


def test_timings_of_a_commit_that_is_not_here_stay_in_the_queue(
    queue: FleetQueue, machines: tuple[Machine, Machine], project: Path, timed: dict[str, Any]
) -> None:
    timed["job"] = replace(timed["job"], commit="1" * 40)
    hand_in(queue, machines[0], timed, "")
    (refused,) = import_queue(project, queue).refused
    assert "1111" in refused.rule
    assert set_aside_jobs(queue) == []
    assert len(results(queue)) == 1


def test_timings_are_queued_for_cells_that_lack_them(
    address: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("IVHL_QUEUE", address("postgres"))
    where = ("--commit", "HEAD", "--torch", "2.15.0", "--python", "3.13", "--machine", "lab-1")

    def told(*words: str) -> str:
        done = CliRunner().invoke(app, ["fleet", *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "py3.13-torch2.15.0  1 " in told("plan", *where)
    assert told("submit", *where).startswith("1 new job, 0 already in the queue\n")
    assert told("submit", *where).startswith("0 new jobs, 1 already in the queue\n")
    commit = find_commit(project, "HEAD")[:12]
    assert told("cancel", commit) == f"{commit}: 1 job removed\n"
    assert told("submit", *where).startswith("1 new job, 0 already in the queue\n")
    with FleetQueue(address("lab-1"), print) as queue:
        needs = [need_of(CellSpec("3.13", "2.15.0"))._replace(alone=True, machine="lab-1")]
        claimed = queue.claim(queue.register(needs), needs)
    assert claimed is not None
    assert len(claimed.job.rows) > 20
    assert claimed.job.core_s > 60
    for wrong, rule in (
        (("einops", "--commit", "HEAD"), "not einops"),
        (("--machine", "lab-1"), "--machine: needs --commit"),
        (("--device", "cuda"), "--device: needs --commit"),
        (("--commit", "nothing"), "nothing"),
    ):
        error = CliRunner().invoke(app, ["fleet", "plan", *wrong]).exception
        assert isinstance(error, SpecError)
        assert rule in str(error)
    shutil.rmtree(project / "observatory")
    error = CliRunner().invoke(app, ["fleet", "plan"]).exception
    assert str(error) == "this project has no observatory/libraries.toml"


def time_until_killed(project: Path, asked: FleetJob, cache: Path) -> bytes:
    """Time a job in a process that is killed after its first record, which is returned."""
    words = f"""
        from pathlib import Path
        from rich.console import Console
        from ivhl.fleet.queue import FleetJob, Need
        from ivhl.fleet.timings import time_cases
        time_cases(Path({str(project)!r}), {asked!r}, 1, "lab-1", Console())"""
    with subprocess.Popen(
        [sys.executable, "-c", dedent(words)], env=os.environ | {"XDG_CACHE_HOME": str(cache)}
    ) as timing:
        while timing.poll() is None:
            time.sleep(0.1)
            for path in cache.glob("ivhl/fleet/timings-*/lab-1/records/*.jsonl"):
                if (lines := path.read_bytes()).endswith(b"\n"):
                    timing.kill()
                    return lines.splitlines()[0]
    raise AssertionError("no record")


@pytest.mark.full
def test_a_worker_times_a_cell_and_writes_nothing_into_its_checkout(
    queue: FleetQueue,
    address: Callable[[str], str],
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = CellSpec("3.12", "2.15.0")
    commit = find_commit(project, "HEAD")
    (found,) = timing_jobs(
        project, [cell], tiny_cases(project), commit=commit, device="cpu", machine=None
    )
    submit(queue, [found])
    monkeypatch.setattr("ivhl.fleet.timings.cells_folder", lambda: tmp_path / "ivhl" / "cells")
    (lost := tmp_path / "ivhl" / "fleet" / "timings-of-another-job").mkdir(parents=True)
    first = read_record(time_until_killed(project, found, tmp_path))
    before = subprocess.check_output(["git", "status", "--short", "--ignored"], cwd=project)
    told: list[object] = []
    worker: FleetWorker = run_worker(
        address("lab-1"),
        tmp_path,
        needs=[found.need],
        measure=lambda asked, attempt: time_and_stop(worker, project, asked, attempt),
        tell=told.append,
    )
    worker.work()
    assert (
        subprocess.check_output(["git", "status", "--short", "--ignored"], cwd=project) == before
    )
    imported = import_queue(project, queue)
    assert (imported.new.total(), imported.refused) == (len(found.rows), ()), told
    (kept,) = (project / "results" / "lab-1" / "records").iterdir()
    assert first in map(read_record, kept.read_bytes().splitlines())
    assert not lost.exists()
    assert not timing_jobs(
        project, [cell], tiny_cases(project), commit=commit, device="cpu", machine=None
    )


def tiny_cases(project: Path) -> tuple[Case, ...]:
    workloads = load_workloads(load_project(project).workloads)
    names = ("ops.mera_ascend", "ops.mera_descend")
    return Selection(workloads=names, suite="core").choose(workloads)


def time_and_stop(worker: FleetWorker, project: Path, asked: FleetJob, attempt: int) -> str:
    try:
        return time_cases(project, asked, attempt, "lab-1", Console())
    finally:
        worker.stop()


def test_jobs_are_what_no_machine_has_recorded() -> None:
    observatory = Observatory(ROOT / "observatory", print, of_fleet=True)
    rows = [one for one in read_rows(ROOT / "observatory") if one.name in ("einops", "timm")]
    newest, older = CellSpec("3.12", "2.15.0"), CellSpec("3.12", "2.14.1")
    assert jobs_of(observatory, rows, [newest]) == []
    observatory.known.clear()
    jobs = jobs_of(observatory, rows, [older, newest])
    assert [(one.need, one.name) for one in jobs] == [
        (need_of(cell), row.name) for cell in (newest, older) for row in rows
    ]
    assert [one.worth for one in jobs] == sorted((one.worth for one in jobs), reverse=True)
    assert len({one.key for one in jobs}) == len(jobs)


@pytest.mark.full
def test_two_workers_observe_a_cell_and_write_nothing_into_their_checkout(
    queue: FleetQueue, address: Callable[[str], str], checkout: Path, tmp_path: Path
) -> None:
    cell = CellSpec("3.12", "2.15.0")
    names = ("einops", "pytorch-crf")
    rows = [one for one in read_rows(checkout / "observatory") if one.name in names]
    lock = lock_state(SHIPPED, cell).sha256
    submit(
        queue,
        [
            FleetJob(need_of(cell), one.name, tuple(q.row for q in one.questions), lock, 9.0, 0)
            for one in rows
        ],
    )
    before = subprocess.check_output(["git", "status", "--short"], cwd=ROOT)
    both = []
    for machine in ("lab-1", "lab-2"):
        with (tmp_path / machine).open("w") as told:
            words = [sys.executable, "-m", "ivhl", "fleet", "work", "--python", "3.12"]
            environment = os.environ | {"IVHL_QUEUE": address(machine)}
            both.append(subprocess.Popen(words, cwd=ROOT, env=environment, stderr=told))
    for _ in range(900):
        if len(results(queue)) == len(names) or any(one.poll() is not None for one in both):
            break
        time.sleep(1)
    for one in both:
        one.terminate()
    assert [one.wait(300) for one in both] == [0, 0], (tmp_path / "lab-1").read_text()
    imported = import_queue(checkout, queue)
    assert imported.refused == ()
    assert subprocess.check_output(["git", "status", "--short"], cwd=ROOT) == before
    known = read_observed(ROOT / "observatory" / "records", print)
    home = read_observed(checkout / "observatory" / "records", print)
    assert len(home) == sum(len(one.questions) for one in rows)
    for key, record in home.items():
        (committed,) = {one.status for k, one in known.items() if k[:4] == key[:4]}
        assert record.status == committed


def test_a_control_repeats_what_works_and_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which records, and what it makes of them; what runs them has tests of its own."""
    asked: list[Observed] = []
    outcomes: dict[str, Observed | Exception | None] = {}

    def again(_: Observatory, known: Observed, row: Library) -> Observed | None:
        assert row.name == known.library
        asked.append(known)
        found = outcomes.get(known.status, known)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(Observatory, "again", again)
    known = Observatory(ROOT / "observatory", print).known
    monkeypatch.setattr("ivhl.observatory.observing.read_observed", lambda *_: known)
    cells = [CellSpec("3.12", "2.15.0"), CellSpec("3.12", "2.14.1")]
    folder = ROOT / "observatory"
    assert control(folder, cells, "lab-1", print) == ""
    assert [one.status for one in asked] == ["works", "failed"]
    assert {one.torch for one in asked} == {"2.15.0"}
    outcomes["failed"] = asked[0]
    assert asked[1].case in control(folder, cells, "lab-1", print)
    assert asked[-1] == asked[-2], "a single difference is none"
    outcomes["failed"] = SpecError("its row has changed")
    assert control(folder, cells, "lab-1", print) == ""
    outcomes["works"] = None
    with pytest.raises(LockError, match="did not run"):
        control(folder, cells, "lab-1", print)
    with pytest.raises(LockError, match="no record of the cells"):
        control(folder, [CellSpec("3.99", "2.15.0")], "lab-1", print)
