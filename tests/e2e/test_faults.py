"""Each fault of a workload gets its record, and the other workloads are measured."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ivhl.machine.identity import this_machine
from ivhl.measure.effort import Effort
from ivhl.measure.failures import LIMIT_REACHED
from ivhl.measure.outcome import what_runs_eagerly
from ivhl.measure.run import Run
from ivhl.measure.runner import run_cases
from ivhl.measure.supervisor import living_descendants
from ivhl.records.reader import read_record
from ivhl.records.record import Cell, RunRecord
from ivhl.workload import Case, load_workloads, select_cases
from tests.builders.processes import alive, appears, ends

ROOT = Path(__file__).parents[2]
# Of the daemons that the faulty workloads start.
LEFT = f"left by {ROOT}"
WORKLOADS = "tests.e2e.faulty:WORKLOADS"


# Workload, failure class, phase, and what the message says.
FAULTS = [
    ("bad.import", "import", "import", "no_such_module"),
    ("bad.inputs", "inputs", "inputs", "this workload raises"),
    ("bad.reference", "reference", "reference", "this workload raises"),
    ("bad.eager", "eager_failed", "eager", "this workload raises"),
    ("bad.eager_wrong", "eager_failed", "eager", "does not agree with the reference"),
    ("bad.eager_mutates", "eager_failed", "eager", "changes its inputs"),
    ("bad.graph_break", "graph_break", "compile", "graph_break"),
    ("bad.skipped", "not_compiled", "accuracy", "ran eagerly without an error"),
    ("bad.wrong", "wrong", "accuracy", "against float64"),
    ("bad.wrong_shape", "wrong", "accuracy", "shape (255,)"),
    ("bad.nan", "wrong", "accuracy", "it is nan instead of "),
    ("bad.mutates", "side_effect", "accuracy", "changes its inputs"),
    ("bad.threads", "side_effect", "eager", "torch.get_num_threads() was 1 and is 2"),
    ("bad.source_wrong", "eager_failed", "eager", "own source"),
    ("bad.recompiles", "recompile_limit", "accuracy", ""),
    ("bad.guards_on_data", "recompile_limit", "timing", "on new data: "),
    ("bad.segfault", "crash", "compile", "SIGSEGV"),
    ("bad.exit", "crash", "eager", "exited with status 7"),
    ("bad.sys_exit", "eager_failed", "eager", "e2e/faulty_calls.py:"),
    ("bad.sys_exit", "eager_failed", "eager", "calls sys.exit(3) in phase eager"),
    (
        *("bad.import_exit", "import", "import"),
        "e2e/exits_when_imported.py:5 calls os._exit(0): a module may not end the process",
    ),
    (
        *("bad.import_sys_exit", "import", "import"),
        "e2e/leaves_when_imported.py:5 calls sys.exit(3): a module may not end the process",
    ),
    ("bad.killed", "crash", "eager", "SIGKILL"),
    ("bad.memory", "out_of_memory", "eager", "GiB"),
    ("bad.hang", "timeout", "eager", "after 12 s"),
    ("bad.stops_itself", "timeout", "eager", "after 12 s"),
    ("bad.daemon", "timeout", "eager", "after 12 s"),
    ("bad.stops_parents", "crash", "eager", "SIGSEGV"),
    ("bad.kills_parent", "crash", "eager", "SIGKILL"),
]

# In `tests` a fault of each class and each kind of end; the others in `tests-full`.
QUICK = {
    *("bad.import", "bad.inputs", "bad.reference", "bad.eager", "bad.eager_wrong"),
    *("bad.graph_break", "bad.skipped", "bad.wrong", "bad.mutates", "bad.recompiles"),
    *("bad.segfault", "bad.exit", "bad.memory", "bad.hang", "bad.stops_parents"),
}
HANGING = {"bad.hang", "bad.stops_itself", "bad.daemon"}
GOOD = ("good.first", "good.daemon", "good.last", "good.other_default")
with_faults = pytest.mark.parametrize(
    ("workload", "failure_class", "phase", "says"),
    [pytest.param(*row, marks=[] if row[0] in QUICK else [pytest.mark.full]) for row in FAULTS],
)


def make_run(folder: Path, cache: Path) -> Run:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Run(
        project="faulty",
        commit="0" * 40,
        workloads=WORKLOADS,
        cell=Cell(id=f"py{version}-torch0.0", python=version, torch="0.0", lock_sha256=None),
        machine=this_machine("test"),
        results=str(folder / "results"),
        scratch=str(folder / "scratch"),
        cache=str(cache),
        repeat="repeat",
        effort=Effort(deadline_s=60, memory_limit=4 << 30),
    )


def cases(*names: str) -> tuple[Case, ...]:
    return select_cases(load_workloads(WORKLOADS), names=names)


def read(run: Run) -> dict[str, RunRecord]:
    lines = run.record_file.read_bytes().splitlines()
    records = [read_record(line) for line in lines]
    return {record.workload: record for record in records}


@pytest.fixture(scope="module")
def records(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> dict[str, RunRecord]:
    """Measure the faults of the tests that were selected, and what is around them."""
    selected = (getattr(item, "callspec", None) for item in request.session.items)
    named = {spec.params.get("workload") for spec in selected if spec is not None}
    more = {row[0] for row in FAULTS if row[0] in named}
    run = make_run(tmp_path_factory.mktemp("faults"), cache)
    if more <= QUICK:  # in `tests`, where a single process times each
        run = replace(run, effort=replace(run.effort, processes=1))
    return measure(run, {*QUICK, *more, *GOOD, "good.recompiles_silently"})


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, RunRecord]:
    run = make_run(tmp_path_factory.mktemp("verdicts"), cache)
    every = {case.workload.name for case in cases()}
    return measure(replace(run, effort=replace(run.effort, processes=0)), every)


def measure(run: Run, names: set[str]) -> dict[str, RunRecord]:
    run_cases(run, [one for one in cases() if one.workload.name in names - HANGING])
    # The deadline must not end the others on a slow machine.
    if hanging := names & HANGING:
        run_cases(replace(run, effort=replace(run.effort, deadline_s=12)), cases(*hanging))
    found = read(run)
    assert alive(LEFT) == []
    return found


@with_faults
def test_a_fault_gets_its_failure_class(
    records: dict[str, RunRecord], workload: str, failure_class: str, phase: str, says: str
) -> None:
    record = records[workload]
    assert record.speedup is None
    assert record.failure is not None
    assert (record.failure.failure_class, record.failure.phase) == (failure_class, phase)
    assert says in record.failure.message


@pytest.mark.full
@pytest.mark.parametrize(("workload", "failure_class", "phase", "says"), FAULTS)
def test_a_verdict_names_the_same_failure_class(
    verdicts: dict[str, RunRecord], workload: str, failure_class: str, phase: str, says: str
) -> None:
    test_a_fault_gets_its_failure_class(verdicts, workload, failure_class, phase, says)
    assert verdicts[workload].eager is None


@pytest.mark.full
def test_a_verdict_on_what_works_has_what_dynamo_did_and_no_seconds(
    verdicts: dict[str, RunRecord],
) -> None:
    for name in GOOD:
        record = verdicts[name]
        assert (record.failure, record.speedup, record.eager, record.aa) == (None,) * 4
        assert record.compile is not None
        assert record.compile.frames_ok == record.compile.frames_total == 1
        assert (record.compile.cold_s, record.compile.warm_s) == (None, None)
        assert record.accuracy[0].passed


@pytest.mark.full
def test_a_verdict_warns_of_what_is_wrong_at_another_size(verdicts: dict[str, RunRecord]) -> None:
    for name, says in (
        ("good.other_size", ""),
        ("good.wrong_at_other_size", "at size other, wrong"),
    ):
        record = verdicts[name]
        assert record.failure is None, record.failure
        assert record.compile is not None
        assert record.compile.recompiles == ()
        assert [says in one.text for one in record.warnings] == ([True] if says else [])


def test_the_workloads_around_the_faults_are_measured(records: dict[str, RunRecord]) -> None:
    for name in ("good.first", "good.daemon", "good.last"):
        record = records[name]
        assert record.failure is None
        assert record.speedup is not None
        assert record.aa is not None
        assert record.compile is not None
        assert record.compile.frames_ok == record.compile.frames_total == 1
        assert record.compile.graph_breaks == record.compile.recompiles == ()
        assert record.compile.warm_s is not None
        assert record.memory is not None
        # The result alone has 256 float32; a smaller peak would not be a measurement.
        assert record.memory.eager_peak is not None
        assert record.memory.eager_peak >= 256 * 4
        assert record.accuracy[0].passed


def test_inputs_that_change_the_process_for_all_arms_are_measured_with_a_warning(
    records: dict[str, RunRecord],
) -> None:
    record = records["good.other_default"]
    assert record.speedup is not None
    said = [one.text for one in record.warnings if "changes the process" in one.text]
    assert len(said) == 1
    assert "torch.get_default_dtype() was torch.float32 and is torch.float64" in said[0]
    assert not any("changes the process" in one.text for one in records["good.first"].warnings)


def test_a_frame_that_reached_the_recompile_limit_has_its_number_beside_the_warning(
    records: dict[str, RunRecord],
) -> None:
    record = records["good.recompiles_silently"]
    assert record.failure is None, record.failure
    assert record.speedup is not None
    assert [one.text for one in record.warnings if LIMIT_REACHED in one.text]
    assert "the recompile limit was reached" in what_runs_eagerly(record)


def test_a_case_that_does_not_compile_keeps_its_eager_times(records: dict[str, RunRecord]) -> None:
    for name in ("bad.graph_break", "bad.skipped", "bad.wrong", "bad.segfault"):
        assert records[name].eager is not None
        assert records[name].aa is not None


def test_the_output_of_a_hanging_workload_is_kept(records: dict[str, RunRecord]) -> None:
    failure = records["bad.hang"].failure
    assert failure is not None
    assert failure.output_tail.endswith("still here")


def test_a_record_names_the_place_in_the_users_code(records: dict[str, RunRecord]) -> None:
    failure = records["bad.eager"].failure
    assert failure is not None
    assert failure.where.startswith("e2e/faulty_calls.py:")


def test_an_interrupted_run_is_resumed(tmp_path: Path, cache: Path) -> None:
    run = make_run(tmp_path, cache)
    steps: list[tuple[str, str]] = []

    def note(step: str, case: Case, _: RunRecord | None) -> None:
        steps.append((step, case.workload.name))

    class StoppedError(Exception):
        pass

    def stop(step: str, case: Case, _: RunRecord | None) -> None:
        if (step, case.workload.name) == ("started", "bad.wrong"):
            raise StoppedError

    wanted = cases("bad.inputs", "bad.killed", "bad.wrong")
    with pytest.raises(StoppedError):
        run_cases(run, wanted, stop)
    assert set(read(run)) == {"bad.inputs", "bad.killed"}
    run_cases(run, wanted, note)
    # A killed process says nothing about the workload, so the case is measured again.
    assert ("kept", "bad.inputs") in steps
    assert ("finished", "bad.killed") in steps
    assert ("finished", "bad.wrong") in steps
    assert len(run.record_file.read_text(encoding="utf-8").splitlines()) == 4


def test_sigkill_of_the_measuring_process_loses_one_case(tmp_path: Path, cache: Path) -> None:
    run = make_run(tmp_path, cache)
    # In a thread: a process of its own would compile for the first time, which takes it 20 s.
    with ThreadPoolExecutor() as threads:
        ended = threads.submit(run_cases, run, cases("bad.hang", "bad.inputs"))
        os.kill(wait_for_case(os.getpid()), signal.SIGKILL)
        ended.result(60)
    records = read(run)
    killed, other = records["bad.hang"].failure, records["bad.inputs"].failure
    assert killed is not None
    assert (killed.failure_class, killed.exception) == ("crash", "SIGKILL")
    assert other is not None
    assert other.failure_class == "inputs"


@pytest.mark.parametrize("isolate", ["1", pytest.param("0", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("how", "processes"),
    [
        # Without a fork server, which would compile for the first time.
        (signal.SIGKILL, "0"),
        pytest.param(signal.SIGKILL, "2", marks=pytest.mark.full),
        pytest.param(signal.SIGTERM, "2", marks=pytest.mark.full),
        pytest.param(signal.SIGINT, "2", marks=pytest.mark.full),
    ],
)
def test_a_run_that_is_ended_takes_its_cases_and_their_daemons_along(
    tmp_path: Path, isolate: str, how: signal.Signals, processes: str
) -> None:
    command = [
        sys.executable, "-m", "ivhl.measure", "--out", str(tmp_path), "--machine", "test",
        "--workloads", WORKLOADS, "--workload", "bad.daemon", "--processes", processes,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT), "IVHL_PID_NAMESPACE": isolate}
    with subprocess.Popen(command, cwd=ROOT, env=environment) as run:
        try:
            appears(LEFT, within_s=300)
            run.send_signal(how)
            time.sleep(0.1)
            run.send_signal(how)  # Ctrl-C twice
            run.wait(60)
        finally:
            run.kill()
    assert ends(LEFT)


@pytest.mark.full
def test_a_full_disk_is_reported_and_loses_no_record(tmp_path: Path, cache: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)],
        check=False,
        capture_output=True,
    )
    if mount.returncode:
        pytest.skip("needs the right to mount a tmpfs: " + mount.stderr.decode().strip())
    try:
        run = replace(make_run(tmp_path, cache), results=str(small))
        run_cases(run, cases("bad.inputs"))
        fill_up(small / "filler")
        with pytest.raises(OSError, match="No space left"):
            run_cases(run, cases("bad.eager"))
        kept = run.record_file.read_bytes().splitlines()[0]
        assert read_record(kept).workload == "bad.inputs"
        (small / "filler").unlink()
        run_cases(run, cases("bad.inputs", "bad.eager"))
        lines = run.record_file.read_text(encoding="utf-8").splitlines()
        assert json.loads(lines[-1])["workload"] == "bad.eager"
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def fill_up(path: Path) -> None:
    """Write until the disk is full."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def wait_for_case(runner: int) -> int:
    """Return the process of the case that hangs in ``runner``.

    Other cases compile at the same time, and end a few seconds later.
    """
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for pid in living_descendants(runner):
            with contextlib.suppress(OSError):
                output = Path(f"/proc/{pid}/fd/1").readlink()
                if output.name.startswith("compile-0-"):
                    time.sleep(5)
                    if not is_zombie(pid):  # raises if it has ended
                        return pid
        time.sleep(0.05)
    raise AssertionError("no process of a case appeared")


def is_zombie(process: int) -> bool:
    """Return whether the process is a zombie."""
    stat = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    return stat.rpartition(")")[2].split()[0] == "Z"
