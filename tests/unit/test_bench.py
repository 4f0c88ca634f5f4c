"""``ivhl bench`` reports its progress, refuses invalid requests and resumes interrupted runs."""

from __future__ import annotations

import errno
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ivhl.asv.configuration import write_configuration
from ivhl.asv.machine import asv_machine
from ivhl.bench.checks import (
    check_device,
    check_machine,
    check_room,
    those_that_fit,
)
from ivhl.bench.main import lock_of, resolve_commit
from ivhl.bench.progress import Display, RunState, minutes, outcome
from ivhl.bench.request import Done, Request, Selection, Suite
from ivhl.cli import app
from ivhl.errors import LockError, ResultsError, SpecError, UnknownNameError
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.measure.alone import (
    only_run_here,
    only_user_of_gpu,
    only_writer,
    refuse_without_device,
)
from ivhl.measure.effort import Effort
from ivhl.measure.failures import LIMIT_REACHED
from ivhl.measure.launcher import case_environment
from ivhl.measure.outcome import what_runs_eagerly
from ivhl.measure.run import repeat_command
from ivhl.measure.settings import Settings, read_settings, write_settings
from ivhl.measure.suite import value, values_in
from ivhl.records.answers import is_final, newest_keys
from ivhl.records.files import append_record
from ivhl.records.record import Cell, Counted, FailureClass, Machine
from ivhl.tracker.store.records import case_name
from ivhl.workload import Case, Cost, Variant, select_cases
from tests.builders.fleet import a_record, commit, make_fleet_project, write_records
from tests.builders.processes import STARTS, alive, appears, ends
from tests.builders.project import git
from tests.builders.records import EMPTY_WORKLOAD, make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKLOAD = replace(
    EMPTY_WORKLOAD,
    name="ops.one",
    variants=(Variant(name="a", call="m:f"), Variant(name="b", call="m:f")),
)
CASES = select_cases([WORKLOAD])


def settings(folder: Path) -> Settings:
    return Settings(
        root=str(folder),
        project="p",
        workloads="m:W",
        machine=Machine(name="here", cpu="c", n_cpus=1, memory_bytes=1, system="Linux x86_64"),
        results=str(folder / "results"),
        scratch=str(folder / "scratch"),
        events=str(folder / "events.jsonl"),
        interpreters={"3.12": "python3.12"},
        names=("ops.one/small/a",),
    )


def shown(folder: Path, events: list[dict[str, Any]]) -> tuple[str, RunState]:
    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(e) + "\n" for e in events), encoding="utf-8")
    sink = StringIO()
    console = Console(file=sink, width=100, force_terminal=False)
    state = RunState(path, ["py3.12-torch2.6.0", "py3.12-torch2.5.1"], CASES)
    with Display(console, state) as display:
        display.update()
    return sink.getvalue(), state


def event(name: str, at: float = 0.0, **details: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"event": name, "at": at, "cell": "py3.12-torch2.6.0", **details}


def test_every_ending_is_told_in_a_line(tmp_path: Path) -> None:
    said, _ = shown(
        tmp_path,
        [
            event("cell-created", seconds=1.5, message=""),
            event("case-started", 10.0, case="ops.one/small/a"),
            event("case-finished", 14.0, case="ops.one/small/a", seconds=4.0, speedup=2.5,
                  failure_class=None),
            event("case-finished", 15.0, case="ops.one/small/b", seconds=1.0, speedup=None,
                  failure_class="timeout"),
        ],
    )  # fmt: skip
    assert "environment ready  (1.5 s)" in said
    assert "ops.one/small/a: 2.50x  (4.0 s)" in said
    assert "ops.one/small/b: timeout" in said


def test_time_left_follows_what_was_measured(tmp_path: Path) -> None:
    _, before = shown(tmp_path, [])
    started = event("case-started", 100.0, case="ops.one/small/a")
    finished = event(
        "case-finished", 107.0, case="ops.one/small/a", seconds=7.0, speedup=1.0,
        failure_class=None,
    )  # fmt: skip
    _, after = shown(tmp_path, [started, finished])
    # Three cases of 7 s, and one cell that has not been begun.
    assert after.seconds_left() == pytest.approx(3 * 7 + 15)
    assert before.seconds_left() > after.seconds_left()


def test_a_cell_that_failed_leaves_nothing_to_do_in_it(tmp_path: Path) -> None:
    said, state = shown(tmp_path, [event("cell-failed", seconds=0.0, message="no disk\nmore")])
    assert "FAILED: no disk" in said
    assert "more" not in said
    assert state.measured_something


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    line = json.dumps(event("cannot-write", path="p", message="full")) + "\n"
    path.write_text(line[:20], encoding="utf-8")
    state = RunState(path, ["py3.12-torch2.6.0"], CASES)
    state.read()
    too_early = state.cannot_write
    path.write_text(line, encoding="utf-8")
    state.read()
    assert (too_early, state.cannot_write) == ("", "p: full")


@pytest.mark.parametrize(("seconds", "text"), [(3.2, "3 s"), (89, "89 s"), (180, "3 min")])
def test_times_are_for_people(seconds: float, text: str) -> None:
    assert minutes(seconds) == text


SIZED = replace(WORKLOAD, sizes={"small": 1, "large": 2})
SECOND = replace(
    WORKLOAD,
    name="ops.two",
    variants=(*WORKLOAD.variants, Variant(name="gpu", call="m:f", devices=("cuda",))),
    core="a",
)
STOOD_FOR = replace(WORKLOAD, name="ops.three", core="")
EVERY = (SIZED, SECOND, STOOD_FOR)
OTHERS = "one/small/a two/small/b three/small/a three/small/b"


def select(
    *,
    names: Sequence[str] = (),
    size: str | None = None,
    variants: Sequence[str] = (),
    suite: Suite | None = None,
    device: str = "cpu",
) -> tuple[Case, ...]:
    wanted = Selection(workloads=tuple(names), size=size, variants=tuple(variants), suite=suite)
    return wanted.choose(EVERY, device)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, "one/small/b two/small/a"),
        ({"suite": "core"}, "one/small/b two/small/a"),
        ({"device": "cuda"}, "one/small/b two/small/a"),
        ({"suite": "full"}, f"one/small/b two/small/a {OTHERS} one/large/b"),
        # What is named is measured, all variants of it.
        ({"names": ["ops.one"]}, "one/small/a one/small/b"),
        ({"names": ["ops.three"]}, "three/small/a three/small/b"),
        ({"size": "large"}, "one/large/a one/large/b"),
        ({"variants": ["a"]}, "one/small/a two/small/a three/small/a"),
        # Unless a suite is asked for as well, of which it is a part.
        ({"names": ["ops.two", "ops.one"], "suite": "core"}, "one/small/b two/small/a"),
        ({"variants": ["a"], "suite": "core"}, "two/small/a"),
        ({"size": "large", "suite": "core"}, "one/large/b"),
        ({"size": "large", "suite": "full"}, "one/large/b"),
        ({"names": ["ops.three"], "suite": "full"}, "three/small/a three/small/b"),
        ({"variants": ["gpu"], "suite": "full", "device": "cuda"}, "two/small/gpu"),
    ],
)
def test_a_suite_is_chosen_and_narrowed(wanted: dict[str, Any], names: str) -> None:
    found = [case.name for case in select(**wanted)]
    assert found == [f"ops.{name}" for name in names.split()]


@pytest.mark.parametrize("suite", [None, "core", "full"])
@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"names": ["ops.tow"]}, "unknown workload 'ops.tow'"),
        ({"size": "lrge"}, "unknown size 'lrge'"),
        ({"variants": ["a", "bb"]}, "unknown variant 'bb'"),
        ({"variants": ["gpu"]}, "unknown variant 'gpu'"),
    ],
)
def test_an_unknown_name_is_refused_in_every_suite(
    suite: Any,  # noqa: ANN401
    wanted: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(UnknownNameError) as caught:
        select(**wanted, suite=suite)
    assert str(caught.value) == message


def test_a_suite_that_has_nothing_of_what_is_named_is_refused() -> None:
    with pytest.raises(
        SpecError, match=r"--suite core has no case of ops\.three on cpu"
    ) as caught:
        select(names=["ops.three"], suite="core")
    assert "leave out --suite" in caught.value.hint
    with pytest.raises(SpecError, match="--suite core has no case of any workload on cpu"):
        Selection().choose([STOOD_FOR])


class Costly(Case):
    """A case that needs 1 GiB, or 28 if it is extreme."""

    @property
    def cost(self) -> Cost:
        """What the case takes."""
        return Cost(flops=1.0, bytes=1.0, memory=2.0**30 * (28 if self.size == "extreme" else 1))


def test_a_suite_is_measured_without_what_does_not_fit(tmp_path: Path) -> None:
    small, extreme = (
        Costly(workload=CASES[0].workload, size=size, variant=CASES[0].variant)
        for size in ("small", "extreme")
    )
    sink = StringIO()
    console = Console(file=sink, width=200)
    request = Request(root=tmp_path, python="3.12", effort=Effort(memory_limit=8 * 2**30))
    assert those_that_fit(request, (small, extreme), console) == (small,)
    assert "extreme needs 28.0 GiB, and 8.0 GiB are allowed here" in sink.getvalue()
    with pytest.raises(SpecError, match=r"extreme needs 28\.0 GiB"):
        those_that_fit(replace(request, selection=Selection(size="extreme")), (extreme,), console)


def test_settings_name_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "EVERY", EVERY, raising=False)
    here = replace(settings(tmp_path), workloads="json:EVERY")
    names = ("ops.one/large/b", "ops.one/small/a")
    assert tuple(case.name for case in replace(here, names=names).cases()) == names
    with pytest.raises(UnknownNameError, match=r"unknown case 'ops\.one/small/gpu'"):
        replace(here, names=("ops.one/small/gpu",)).cases()


def test_settings_survive_the_trip(tmp_path: Path) -> None:
    write_settings(tmp_path / "settings.json", settings(tmp_path))
    assert read_settings(tmp_path / "settings.json") == settings(tmp_path)


def test_a_second_run_in_the_same_checkout_is_refused(tmp_path: Path) -> None:
    with only_run_here(tmp_path):
        code = (
            "import sys; from pathlib import Path; from ivhl.measure.alone import only_run_here\n"
            "from ivhl.errors import ResultsError\n"
            "try:\n with only_run_here(Path(sys.argv[1])): pass\n"
            "except ResultsError as error: print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert "another run is measuring" in done.stdout
    with only_run_here(tmp_path):
        pass


def test_two_checkouts_do_not_write_to_one_folder_of_results(tmp_path: Path) -> None:
    with only_writer(tmp_path):
        code = (
            "import sys; from pathlib import Path; from ivhl.measure.alone import only_writer\n"
            "from ivhl.errors import ResultsError\n"
            "try:\n with only_writer(Path(sys.argv[1])): pass\n"
            "except ResultsError as error: print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert "another ivhl is writing to" in done.stdout
    with only_writer(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("torch", "refused"),
    [
        ("def ones(*_, device):\n    raise RuntimeError('no driver')", "no driver"),
        ("def ones(*_, device): ...\nclass cuda:\n    synchronize = int", ""),
        ("def ones(*_, device): ...", "no attribute 'cuda'"),  # PyTorch could not wait for it
        ("raise ImportError('not here')", ""),  # of which each case has a record
    ],
)
def test_a_device_that_pytorch_does_not_see_is_refused_before_there_are_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, torch: str, refused: str
) -> None:
    (tmp_path / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    refuse_without_device("cpu")
    with pytest.raises(SpecError, match=r"--device 'cuda:0': must be lower-case letters"):
        refuse_without_device("cuda:0")
    rule = f"sees no such device: .*{refused}"
    with pytest.raises(SpecError, match=rule) if refused else nullcontext():
        refuse_without_device("cuda")


def test_where_nothing_can_be_locked_nothing_is_replaced_and_records_are_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(ResultsError, match="cannot be locked"), only_writer(tmp_path):
        pass
    with only_writer(tmp_path, beside_others=True):
        pass


def test_a_second_benchmark_waits_for_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IVHL_GPU_LOCK", str(tmp_path / "lock"))
    monkeypatch.delenv("IVHL_GPU_LOCK_HELD", raising=False)
    said: list[str] = []
    order: list[str] = []

    def second() -> None:
        with only_user_of_gpu("cuda", said.append):
            order.append("second")

    thread = threading.Thread(target=second)
    with only_user_of_gpu("cuda", said.append):
        thread.start()
        while not any("waiting: another benchmark has the GPU" in line for line in said):
            time.sleep(0.01)
        # The CPU has no lock, and a workflow that holds it does not wait for itself.
        with only_user_of_gpu("cpu", said.append):
            pass
        with monkeypatch.context() as held:
            held.setenv("IVHL_GPU_LOCK_HELD", "1")
            with only_user_of_gpu("cuda", said.append):
                order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_lock_of_another_user_is_used_and_one_that_cannot_be_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    lock = tmp_path / "lock"
    lock.touch(mode=0o444)
    monkeypatch.setenv("IVHL_GPU_LOCK", str(lock))
    with only_user_of_gpu("cuda", said.append):
        pass
    # Anybody may leave a pipe in /tmp, which would be waited for without end.
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("IVHL_GPU_LOCK", str(tmp_path / "pipe"))
    with only_user_of_gpu("cuda", said.append):
        pass
    monkeypatch.setenv("IVHL_GPU_LOCK", str(tmp_path / "no" / "such"))
    with (
        pytest.raises(ResultsError, match="cannot be opened"),
        only_user_of_gpu("cuda", said.append),
    ):
        pass


def test_a_folder_without_git_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is in no git repository") as caught:
        resolve_commit(tmp_path, "HEAD", "package:WORKLOADS", Console(file=StringIO()))
    assert "git clone" in caught.value.hint


def test_a_results_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ResultsError, match="cannot create") as caught:
        check_room(tmp_path / "file" / "results")
    assert "--results" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[1,"])
def test_a_broken_asv_configuration_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "asv.conf.json").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"asv\.conf\.json"):
        write_configuration(tmp_path, settings(tmp_path), [])


def test_what_has_a_final_record_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    record = make_record()
    append_record(path, record)
    assert len(newest_keys(path)) == 1
    with path.open("a", encoding="utf-8") as file:
        file.write('{"cut off')
    assert len(newest_keys(path)) == 1
    # A newer one that somebody killed says that it is not final after all.
    append_record(path, make_failure("crash", exception="SIGKILL"))
    assert newest_keys(path) == {}


@pytest.mark.parametrize(
    ("failure_class", "final"),
    [
        ("support_gate", True),
        ("wrong", True),
        ("crash", True),
        ("timeout", False),
        ("out_of_memory", False),
        ("environment", False),
        ("build", False),
        ("unavailable", False),
    ],
)
def test_a_cell_that_could_not_be_made_is_tried_again(
    failure_class: FailureClass,
    final: bool,  # noqa: FBT001
) -> None:
    assert is_final(make_failure(failure_class).failure) is final


def test_the_command_of_a_record_repeats_its_limits(tmp_path: Path) -> None:
    cell = Cell(id="c", python="3.12", torch="2.6.0", lock_sha256=None)
    plain = settings(tmp_path).run_in(cell, "0" * 40)
    assert "--deadline" not in repeat_command(plain, CASES[0])
    limited = replace(plain, effort=Effort(deadline_s=30.5, memory_limit=3 << 29))
    assert repeat_command(limited, CASES[0]) == (
        "ivhl bench --python 3.12 --torch 2.6.0 --commit 00000000 --workload ops.one --size small "
        "--variant a --deadline 30.5 --memory-limit 1.5 --force"
    )


def test_a_case_sees_a_fixed_allocator_and_none_of_the_callers_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    cell = Cell(id="c", python="3.12", torch="2.6.0", lock_sha256=None)
    seen = case_environment(settings(tmp_path).run_in(cell, "0" * 40), tmp_path)
    assert "mmap_threshold=33554432" in seen["GLIBC_TUNABLES"]
    assert seen["OMP_NUM_THREADS"] == "1"
    assert seen["IVHL_MEASURING"] == "1"


def test_a_lock_made_for_this_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    matrix = load_matrix(root / "envs" / "matrix.toml")
    there = matrix.cells()[0]
    sink = StringIO()
    console = Console(file=sink, width=200)
    assert lock_of(root, matrix, there, console).kind == "locked"
    assert sink.getvalue() == ""
    state = lock_state(root, there)
    monkeypatch.setattr(
        "ivhl.bench.main.ensure_lock",
        lambda root, *_: replace(state, path=root / "envs" / "locks" / "new.txt"),
    )
    lock_of(tmp_path, matrix, there, console)
    assert f"{there.id} had no lock; wrote envs/locks/new.txt: commit it" in sink.getvalue()


def test_a_release_of_the_tier_next_is_not_measured_without_its_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = Path(__file__).parents[2]
    matrix = load_matrix(root / "envs" / "matrix.toml")
    cell = matrix.cells()[0]
    state = replace(lock_state(root, cell), of_next=True)
    monkeypatch.setattr("ivhl.bench.main.ensure_lock", lambda *_: state)
    monkeypatch.setenv("IVHL_NEXT_INDEX", "https://pypi.test/simple")
    assert lock_of(root, matrix, cell, Console(file=StringIO())) == state
    monkeypatch.delenv("IVHL_NEXT_INDEX")
    with pytest.raises(LockError, match="but IVHL_NEXT_INDEX is not set"):
        lock_of(root, matrix, cell, Console(file=StringIO()))


def test_a_record_of_an_uncommitted_tree_answers_nothing(tmp_path: Path) -> None:
    for uncommitted, answered in ((None, 1), (False, 1), (True, 0)):
        path = tmp_path / f"{uncommitted}.jsonl"
        append_record(path, make_record(uncommitted=uncommitted))
        assert len(newest_keys(path)) == answered


def test_a_record_of_another_schema_answers_nothing(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    record = make_record()
    append_record(path, record)
    newer = path.read_text(encoding="utf-8").replace("ivhl.run/5", "ivhl.run/99")
    path.write_text(newer, encoding="utf-8")
    assert newest_keys(path) == {}
    assert values_in(path, record.cell, "cpu") == {}


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [("cpu", "another", "cpu 'another' there, 'c' here"), ("num_cpu", "64", "num_cpu '64' there")],
)
def test_a_name_belongs_to_one_machine(tmp_path: Path, field: str, value: str, told: str) -> None:
    here = settings(tmp_path)
    check_machine(here)  # nobody has the name yet
    file = tmp_path / "results" / "here" / "machine.json"
    file.parent.mkdir(parents=True)
    known = asv_machine(here.machine) | {"version": 1}
    file.write_text(json.dumps(known), encoding="utf-8")
    check_machine(here)
    file.write_text(json.dumps(known | {"ram": "7 GiB"}), encoding="utf-8")
    check_machine(here)  # a virtual machine with a little more or less is still the same
    file.write_text(json.dumps(known | {field: value}), encoding="utf-8")
    with pytest.raises(SpecError, match=r"results of another machine named 'here'") as refused:
        check_machine(here)
    assert told in str(refused.value)
    assert "--machine" in str(refused.value.hint)


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ivhl.bench.checks.has_nvidia_driver", lambda: False)
    with pytest.raises(SpecError, match="no NVIDIA driver"):
        check_device("cuda")
    check_device("cpu")


def test_asv_reads_the_newest_values_and_the_reason_where_there_are_none(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    record = make_record()
    append_record(path, record)
    values = values_in(path, record.cell, "cpu")
    (case,) = values
    assert record.speedup is not None
    assert value(values, case, "speedup") == record.speedup.value
    assert value(values, case, "relative") == 1 / record.speedup.value
    assert value(values, case, "failed") == 0
    assert value(values, case, "eager_s")["number"] == 1
    append_record(path, make_failure("wrong"))
    values = values_in(path, record.cell, "cpu")
    assert value(values, case, "failed") == 1
    with pytest.raises(RuntimeError, match="wrong in phase"):
        value(values, case, "speedup")


def test_values_of_another_lock_or_device_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    record = make_record()
    append_record(path, record)
    other = Cell(
        **{f: getattr(record.cell, f) for f in ("id", "python", "torch")}, lock_sha256="x"
    )
    assert values_in(path, other, "cpu") == {}
    assert values_in(path, record.cell, "cuda") == {}


def test_a_case_that_was_not_run_is_not_applicable() -> None:
    assert value({}, "ops.one/small/a", "speedup") != value({}, "ops.one/small/a", "speedup")


RUN_ASV = """
import os, subprocess, sys
from pathlib import Path
from types import SimpleNamespace
from ivhl.asv.run import run_asv
from ivhl.machine.identity import this_machine
from ivhl.measure.settings import Settings

old = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
root = Path.cwd()
settings = Settings.of_checkout(
    root, project="demo", workloads="m:W", machine=this_machine("box"), results=root / "results"
)
status = run_asv(settings, [], [], commit="HEAD", watch=lambda: None, under=list)
print(status, old.poll())
old.kill()
"""
# As a workload that leaves a daemon behind.
LEAVING_ASV = f"""{STARTS}
token = open("token").read()
daemon(token)
start_sleep(token)
if os.path.exists("waits"): time.sleep(600)
"""


@pytest.fixture
def token(tmp_path: Path) -> str:
    """Mark of the processes that are left, in a project with such an asv."""
    make_fleet_project(tmp_path)
    (tmp_path / ".asv").mkdir()
    (tmp_path / "asv").mkdir()  # `python -m asv` finds it first: it is in the current folder
    (tmp_path / "asv" / "__init__.py").touch()
    (tmp_path / "asv" / "__main__.py").write_text(LEAVING_ASV)
    (tmp_path / "token").write_text(mark := secrets.token_hex(16))
    return mark


def test_what_a_run_leaves_behind_is_ended_and_nothing_else(tmp_path: Path, token: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN_ASV],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["0", "None"]
    assert alive(token) == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_takes_what_asv_started_along_and_its_lock(
    tmp_path: Path, token: str, how: signal.Signals
) -> None:
    (tmp_path / "waits").touch()
    locked = (
        "import signal\nfrom ivhl.measure.alone import only_run_here\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    ) + RUN_ASV.replace("status = run_asv", "with only_run_here(root): status = run_asv")
    with subprocess.Popen(
        [sys.executable, "-P", "-c", locked],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.DEVNULL,
    ) as process:
        appears(token, 2)
        process.send_signal(how)
    assert ends(token)
    until = time.monotonic() + 20
    while is_locked(tmp_path) and time.monotonic() < until:
        time.sleep(0.1)
    assert not is_locked(tmp_path)


def is_locked(root: Path) -> bool:
    try:
        with only_run_here(root):
            return False
    except ResultsError:
        return True


def test_benchmarks_that_are_in_no_commit_are_warned_of(tmp_path: Path) -> None:
    make_fleet_project(tmp_path)

    def told(workloads: str = "benchmarks") -> str:
        sink = StringIO()
        resolve_commit(tmp_path, "HEAD~0", workloads, Console(file=sink, width=200))
        return sink.getvalue()

    folder = tmp_path / "benchmarks"
    folder.mkdir(exist_ok=True)
    (folder / "calls.py").write_text("1")
    assert told().startswith("warning: not committed: benchmarks/calls.py: ivhl repeat cannot")
    commit(tmp_path, "benchmarks")
    # What Python leaves when ivhl imports them; this project ignores nothing.
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "calls.cpython-312.pyc").write_bytes(b"1")
    assert told() == ""
    (folder / "calls.py").write_text("2")
    (folder / "model.py").write_text("1")
    assert "benchmarks/calls.py and 1 more: " in told()
    assert told().count("\n") == 1
    assert told("package:WORKLOADS") == ""


@pytest.mark.parametrize(
    ("session", "arguments", "line"),
    [
        (
            "",
            ["--torch", "2.6.0"],
            "ivhl bench --python 3.12 --torch 2.6.0 continues with the others",
        ),
        ("bench-3.12", [], "nox -s bench-3.12 continues with the others"),
        (
            "bench-3.12",
            ["--workload", "ops.one", "--force"],
            "nox -s bench-3.12 -- --workload ops.one --force measures all of them again (--force)",
        ),
        ("repeat", [], "ivhl bench --python 3.12 continues with the others"),
    ],
)
def test_an_interrupted_run_says_how_to_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    session: str,
    arguments: list[str],
    line: str,
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOX_CURRENT_SESSION", session)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ivhl.cli.bench.bench", interrupted)
    published: list[Path] = []

    def publish(root: Path, *_: object, **__: object) -> SimpleNamespace:
        published.append(root)
        return SimpleNamespace(output=root / "site", problems=())

    monkeypatch.setattr("ivhl.cli.bench.publish", publish)
    done = CliRunner().invoke(app, ["bench", "--python", "3.12", *arguments])
    assert done.exit_code == 130
    assert f"stopped: the cases measured so far are kept; {line}\n" in done.output
    # What is there is shown, unless the site was not asked for.
    assert len(published) == (not {"--no-publish", "--results"} & set(arguments))


@pytest.mark.parametrize(("presses", "built"), [(1, 1), (2, 0), (3, 0)])
def test_a_second_interrupt_leaves_the_site_out_and_cuts_nothing_short(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    presses: int,
    built: int,
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    ended: list[int] = []

    def interrupted(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:  # as what ends the processes of a run
            for _press in range(1, presses):
                signal.raise_signal(signal.SIGINT)
            ended.append(presses)

    monkeypatch.setattr("ivhl.cli.bench.bench", interrupted)
    published: list[bool | None] = []

    def publish(root: Path, *_: object, asv: bool | None) -> SimpleNamespace:
        published.append(asv)
        return SimpleNamespace(output=root / "site", problems=())

    monkeypatch.setattr("ivhl.cli.bench.publish", publish)
    done = CliRunner().invoke(app, ["bench", "--python", "3.12"])
    assert (done.exit_code, ended) == (130, [presses])
    assert published == [None] * built
    assert ("site not built: ivhl publish builds it" in done.output) is not bool(built)
    told = capfd.readouterr().err  # at once, and not when all has ended
    assert told.count("Ctrl-C: stops the run, then builds the site; a second Ctrl-C skips") == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_while_the_site_is_built_stops_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)

    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        pytest.fail("went on")

    monkeypatch.setattr("ivhl.cli.bench.bench", interrupted)
    monkeypatch.setattr("ivhl.cli.bench.publish", interrupted)
    done = CliRunner().invoke(app, ["bench", "--python", "3.12"])
    assert done.exit_code == 130
    assert done.output.endswith("stopped: ivhl publish builds the site\n")


def test_a_run_says_first_what_it_measures_and_which_option_measures_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    variants = tuple(Variant(name=name, call="m:f") for name in ("a", "b"))
    sizes = {"small": 1, "large": 2}
    workload = replace(EMPTY_WORKLOAD, sizes=sizes, variants=variants, core="b")
    monkeypatch.setattr("tests.builders.fleet.WORKLOADS", (workload,))

    def stopped(*_: object) -> None:
        raise SpecError("stopped", hint="")

    monkeypatch.setattr("ivhl.cli.bench.bench", stopped)

    def first(*more: str) -> str:
        return CliRunner().invoke(app, ["bench", "--python", "3.12", *more]).output.splitlines()[0]

    assert first().startswith(
        "1 case (1 of 2 variants, 1 of 2 sizes: small; --suite full measures others) in "
    )
    assert first().endswith("(tier default)")
    assert first("--suite", "full").startswith(
        "3 cases (2 of 2 variants, 2 of 2 sizes: small, large; --size NAME measures others) in "
    )
    named = first("--workload", workload.name, "--size", "large", "--torch", "2.6.0")
    assert named.startswith(
        "2 cases (2 of 2 variants, 1 of 2 sizes: large; --size NAME measures others) in "
    )
    assert named.endswith("in 1 cell (as named)")


def test_a_cell_says_how_long_its_first_case_waits(tmp_path: Path) -> None:
    said, _ = shown(tmp_path, [event("cell-measuring", cases=[])])
    line = said.splitlines()[0]
    assert line.startswith("py3.12-torch2.6.0: cases without a record wait for PyTorch to start:")


def test_building_the_site_is_announced_and_may_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes minutes of a long history."""
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    record = a_record(tmp_path)
    write_records(tmp_path / "results", record)
    done = Done(
        commit=record.commit, machine="box", cells=(), cases=(case_name(record),), missing=(),
        log=tmp_path / "log", seconds=1,
    )  # fmt: skip

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ivhl.cli.bench.bench", lambda *_: done)
    monkeypatch.setattr("ivhl.cli.bench.publish", interrupted)
    told = CliRunner().invoke(app, ["bench", "--python", "3.12"])
    assert told.exit_code != 0
    assert told.output.endswith(
        "builds the site of all records\nstopped: ivhl publish builds the site\n"
    )


def test_the_table_after_a_run_marks_known_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    bare = a_record(tmp_path)
    failed = replace(bare, speedup=None, failure=make_failure("support_gate", "no").failure)
    write_records(tmp_path / "results", failed)
    about = tmp_path / "envs" / "expectations.toml"
    about.write_text(
        '[[failure]]\npython = ""\ntorch = ""\nworkload = "*"\nclass = "support_gate"\n'
        'reason = "a gate"\nlink = "https://github.com/pytorch/pytorch/issues/1"\n'
    )
    cell = CellSpec(failed.cell.python, failed.cell.torch)
    done = Done(
        commit=failed.commit, machine="box", cells=(cell,), cases=(case_name(failed),), missing=(),
        log=tmp_path / "log", seconds=1,
    )  # fmt: skip
    monkeypatch.setattr("ivhl.cli.bench.bench", lambda *_: done)
    command = ["bench", "--python", "3.12", "--no-publish"]
    text = CliRunner().invoke(app, command).output
    assert "support_gate (1) · expected" in text
    assert "https://github.com/pytorch/pytorch/issues/1" in text
    about.write_text("[[failure]]")
    text = CliRunner().invoke(app, command).output
    assert "support_gate (1)" in text
    assert "warning: expectations.toml: failure.0.python: " in text


def test_changed_code_is_told_and_changed_results_are_not(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "code.py").write_text("1")
    (tmp_path / "results" / "benchmarks.json").write_text("{}")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    sink = StringIO()
    console = Console(file=sink, width=200)
    (tmp_path / "results" / "benchmarks.json").write_text("{ }")
    commit = resolve_commit(tmp_path, "HEAD", "package:WORKLOADS", console)
    assert len(commit) == 40
    assert sink.getvalue() == ""
    (tmp_path / "code.py").write_text("2")
    assert resolve_commit(tmp_path, "HEAD", "package:WORKLOADS", console) == commit
    assert "1 changed file not committed" in sink.getvalue()


def test_what_runs_eagerly_stands_beside_the_speedup() -> None:
    event = {"failure_class": None, "speedup": 1.5, "beside": "1 of 2 frames run eagerly"}
    assert outcome(event) == "1.50x, 1 of 2 frames run eagerly"
    assert outcome(event | {"beside": ""}) == "1.50x"
    assert outcome(event | {"failure_class": "wrong"}) == "wrong"


def test_frames_breaks_recompiles_and_the_limit_are_named() -> None:
    record = make_record()
    assert record.compile is not None
    counted = (Counted(text="a", count=2), Counted(text="b", count=1))
    facts = replace(record.compile, frames_total=3, frames_ok=1, graph_breaks=counted)
    facts = replace(facts, recompiles=counted[1:])
    warned = (Counted(text=f"UserWarning: ivhl: {LIMIT_REACHED}, from which", count=1),)
    assert what_runs_eagerly(replace(record, compile=facts, warnings=warned)) == (
        "2 of 3 frames run eagerly, the recompile limit was reached, 3 graph breaks, 1 recompile"
    )
    quiet = replace(facts, frames_ok=3, graph_breaks=(), recompiles=())
    assert what_runs_eagerly(replace(record, compile=quiet, warnings=())) == ""
    assert what_runs_eagerly(replace(record, compile=None)) == ""
