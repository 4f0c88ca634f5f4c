"""A run looks at its machine once, and measures what no record made in the same way answers."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import warnings
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.measure import outcome, runner, suite
from ivhl.measure.__main__ import parser, show
from ivhl.measure.case import refuse_other_version
from ivhl.measure.earlier import sources_at
from ivhl.measure.effort import PROCESSES, Effort
from ivhl.measure.failures import CaseError
from ivhl.measure.job import Job
from ivhl.measure.lanes import (
    CONTEXT_BYTES,
    CompiledCase,
    Lanes,
    Timing,
    compile_case,
    is_starved,
    make_seed,
    time_in_turns,
)
from ivhl.measure.launcher import Launcher, Stage, case_environment, launcher_of, run_stage
from ivhl.measure.outcome import ARMS, disturbance, installed_packages, merge
from ivhl.measure.process import Ending
from ivhl.measure.run import Run
from ivhl.measure.runner import LARGEST_BATCH, batches, run_cases, run_in_turns
from ivhl.measure.settings import Settings
from ivhl.measure.sources import Sources
from ivhl.records.files import append_record
from ivhl.records.reader import read_record
from ivhl.records.record import CompileFacts, Failure, Machine, RecordedObservation, to_json
from ivhl.workload import Case, Cost, Variant
from tests.builders.records import EMPTY_WORKLOAD, make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.measure.runner import Commit
    from ivhl.records.record import FailureClass, RunRecord

RECORD = make_record()
SEEN = (RecordedObservation(check="turbo", level="warning", seen="on"),)


def make_case(variant: str) -> Case:
    return Case(workload=EMPTY_WORKLOAD, size="small", variant=Variant(name=variant, call="m:f"))


CASES = (make_case("a"), make_case("b"))


def make_run(folder: Path, **changes: Any) -> Run:  # noqa: ANN401
    run = Run(
        project="demo",
        commit=RECORD.commit,
        workloads="m:W",
        cell=RECORD.cell,
        machine=Machine(name="m", cpu="c", n_cpus=1, memory_bytes=1 << 30, system="s"),
        results=str(folder / "results"),
        scratch=str(folder / "scratch"),
        repeat="again",
    )
    return replace(run, **changes)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of what a run does; nothing is measured."""
    steps: list[str] = []

    def look(device: str) -> tuple[RecordedObservation, ...]:
        steps.append(f"look at {device}")
        return SEEN

    def make_seed(*_: object) -> None:
        steps.append("seed")

    def compile_all(_: object, cases: Sequence[Case]) -> list[Any]:
        steps.append("compile " + " ".join(case.variant.name for case in cases))
        return [
            CompiledCase(
                folder=tempfile.TemporaryDirectory(), findings={}, failure=None, seconds=0, load=0
            )
            for _ in cases
        ]

    def measure(
        commits: Sequence[Commit], cases: Sequence[Case], *most: object
    ) -> list[list[RunRecord]]:
        steps.extend(case.variant.name for case in cases)
        return [[failed_at(one.run, case, most[-1]) for one in commits] for case in cases]

    def failed_at(run: Run, case: Case, stability: object) -> RunRecord:
        failed = Failure(
            phase="compile", failure_class="support_gate", exception="", message="", where="",
            output_tail="",
        )  # fmt: skip
        return outcome.make_record(
            run,
            case,
            {},
            failed,
            duration_s=1.0,
            load=0.5,
            stability=stability,  # type: ignore[arg-type]
        )

    monkeypatch.setattr(Launcher, "start", lambda _: None)
    monkeypatch.setattr(Lanes, "compile", compile_all)
    monkeypatch.setattr(runner, "observe_stability", look)
    monkeypatch.setattr(runner, "make_seed", make_seed)
    monkeypatch.setattr(runner, "time_cases", measure)
    return steps


def records_of(run: Run, cases: tuple[Case, ...] = CASES) -> list[RunRecord]:
    """Run the cases and return the records that were made."""
    made: list[RunRecord] = []
    run_cases(run, cases, lambda _step, _case, record: made.append(record) if record else None)
    return made


def test_every_record_of_a_run_says_how_steady_its_machine_was(
    tmp_path: Path, done: list[str]
) -> None:
    records = records_of(make_run(tmp_path))
    assert [record.conditions.stability for record in records] == [SEEN, SEEN]
    # Two at a time: one on each of two cores, and what is timed is then alone.
    assert done == ["look at cpu", "seed", "compile a b", "a", "b"]


IMAGE, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize("made", [None, IMAGE])
@pytest.mark.parametrize("asked", [None, IMAGE, OTHER])
def test_a_record_answers_only_for_a_run_of_the_same_image(
    tmp_path: Path, made: str | None, asked: str | None
) -> None:
    run = make_run(tmp_path, image=made)
    first = records_of(run)
    assert [record.conditions.image for record in first] == [made, made]
    again = records_of(replace(run, image=asked))
    assert len(again) == (0 if asked == made else 2)
    # The newest is the one that is shown, so an older one answers for nothing.
    assert len(records_of(run)) == len(again)


def test_a_run_that_has_nothing_to_do_does_not_look(tmp_path: Path, done: list[str]) -> None:
    records_of(make_run(tmp_path))
    done.clear()
    assert records_of(make_run(tmp_path)) == []
    assert done == []


@given(st.integers(0, 60), st.integers(1, 5))
def test_batches_hold_every_case_once_in_order_and_grow(n_cases: int, n: int) -> None:
    cases = [make_case(str(number)) for number in range(n_cases)]
    found = list(batches(cases, n))
    assert list(chain.from_iterable(found)) == cases
    sizes = [len(batch) for batch in found]
    assert all(sizes)
    assert sizes[:1] <= [n]
    assert sizes[:-1] == sorted(sizes[:-1])
    assert max(sizes, default=0) <= LARGEST_BATCH * n
    # Where there is a verdict already, nobody waits for the first.
    assert len(next(batches(cases, n, begun=True), [])) == min(n_cases, LARGEST_BATCH * n)


def test_the_longest_compile_begins_first_and_records_keep_their_order(
    tmp_path: Path, done: list[str]
) -> None:
    run = make_run(tmp_path)
    for seconds, case in zip((1.0, 5.0), CASES, strict=True):
        record = records_of(run, (case,))[0]
        facts = CompileFacts(
            cold_s=seconds, warm_s=None, frames_total=None, frames_ok=None, graphs=None,
            calls_captured=None, graph_breaks=(), recompiles=(),
        )  # fmt: skip
        append_record(run.record_file, replace(record, compile=facts))
    done.clear()
    records_of(replace(run, effort=Effort(force=True)))
    assert done == ["look at cpu", "seed", "compile b a", "a", "b"]


@pytest.mark.usefixtures("done")
def test_a_verdict_is_recorded_as_it_comes_and_has_no_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = threading.Event()
    arm = {"calls": 1, "samples_s": [1.0], "wall_s": [1.0], "cpu_s": [1.0]}
    counts = dict.fromkeys(("frames_total", "frames_ok", "graphs", "calls_captured"), 1)
    facts = counts | {"cold_s": 1.0, "warm_s": 1.0, "graph_breaks": [], "recompiles": []}
    # The code under test can write times into the journal, too.
    written: dict[str, Any] = dict.fromkeys(ARMS, arm) | {"compile": facts, "prepare_s": 1.0}

    def compile_case(_: Run, case: Case, *__: object) -> CompiledCase:
        # The first case of two takes until the second has its record.
        assert case is CASES[1] or second.wait(5)
        folder = tempfile.TemporaryDirectory(dir=tmp_path)
        return CompiledCase(folder=folder, findings=written, failure=None, seconds=0, load=0)

    monkeypatch.setattr("ivhl.measure.lanes.compile_case", compile_case)
    monkeypatch.setattr(runner, "make_seed", lambda _, __, lanes: lanes.begin())
    run = make_run(tmp_path, effort=Effort(processes=0))
    names: list[str] = []

    def on_event(event: str, case: Case, record: RunRecord | None) -> None:
        if event == "finished":
            assert record is not None
            assert (record.failure, record.speedup, record.eager, record.prepare_s) == (None,) * 4
            assert record.compile is not None
            assert (record.compile.cold_s, record.compile.graphs) == (None, 1)
            assert len(run.record_file.read_bytes().splitlines()) == len(names) + 1
            names.append(case.variant.name)
            second.set()

    run_cases(run, CASES, on_event)
    assert names == ["b", "a"]
    run_cases(run, CASES, on_event)  # a verdict answers for another
    assert names == ["b", "a"]


def test_the_first_record_with_seconds_has_the_cold_compile_of_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[str] = []
    fails: list[str] = []

    def run_stage(_: Run, __: Case, here: Path, stage: str, *___: object) -> Stage:
        stages.append(stage)
        (here / "inductor" / "code").write_text("x")
        seconds = {"compile": "cold_s", "time": "warm_s"}[stage]
        failure = make_failure().failure if stage in fails else None
        return {"compile": {seconds: 2.0}}, failure, 1.0

    monkeypatch.setattr("ivhl.measure.lanes.run_stage", run_stage)
    (tmp_path / "scratch").mkdir()
    full = make_run(tmp_path, cache=str(tmp_path / "cache"))
    asked = replace(full, effort=Effort(processes=0))
    launcher = launcher_of(full, tmp_path / "lane")
    launcher.may_fork = True
    launcher.cache.mkdir(parents=True)

    def compiled(run: Run) -> dict[str, Any]:
        with compile_case(run, CASES[0], launcher) as one:
            assert one.failure is None
            assert (Path(one.folder.name) / "inductor" / "code").exists()
            found: dict[str, Any] = one.findings["compile"]
            return found

    assert compiled(asked) == {"cold_s": 2.0}
    # A later verdict calls the kept code; one that fails with it compiles again.
    assert compiled(asked) == {"warm_s": 2.0}
    fails.append("time")
    assert compiled(asked) == {"cold_s": 2.0}
    assert stages == ["compile", "time", "time", "compile"]
    assert compiled(full) == {"cold_s": 2.0}
    assert compiled(full).keys() == {"cold_s", "cold_at"}
    assert len(stages) == 4


def test_a_case_that_is_known_to_fail_has_its_record_before_others_are_timed(
    tmp_path: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a suite of 60, a failed compile was printed four minutes later, in its turn."""
    failed = Failure(
        phase="compile", failure_class="crash", exception="", message="", where="", output_tail=""
    )

    def compile_all(_: object, cases: Sequence[Case]) -> list[Any]:
        return [
            CompiledCase(
                folder=tempfile.TemporaryDirectory(),
                findings={},
                failure=failed if case.variant.name in "cd" else None,
                seconds=0,
                load=0,
            )
            for case in cases
        ]

    monkeypatch.setattr(Lanes, "compile", compile_all)
    monkeypatch.setattr("ivhl.measure.runner.batches", lambda cases, *_, **__: [list(cases)] * 1)
    run_cases(make_run(tmp_path), [make_case(name) for name in "abcd"])
    assert [step for step in done if len(step) == 1] == ["c", "d", "a", "b"]


def test_what_changed_eager_is_believed_when_every_process_says_so() -> None:
    told = {"disturbed": "eager takes 2 times"}
    assert disturbance([]) is None
    assert disturbance([told, {}]) is None
    failure = disturbance([told, told])
    assert failure is not None
    assert failure.failure_class == "side_effect"
    assert failure.message == told["disturbed"]


@pytest.mark.parametrize(
    ("before_s", "after_s", "copy_before_s", "disturbed"),
    [
        (3.7e-3, 1.6e-3, 6e-4, True),  # eager is faster since the variant ran
        (3.7e-3, 1.6e-3, 14e-4, False),  # so is a copy of memory: others had used it
        (1.6e-3, 3.7e-3, 6e-4, True),  # eager is slower since
        (1.6e-3, 3.7e-3, 3e-4, True),  # and so is the machine, which the variant may have done
        (1.6e-3, 1.7e-3, 6e-4, False),
    ],
)
def test_a_machine_that_was_slow_before_is_no_doing_of_the_variant(
    before_s: float, after_s: float, copy_before_s: float, *, disturbed: bool
) -> None:
    rounds = pytest.importorskip("ivhl.measure.rounds", reason="imports torch")
    noted: dict[str, Any] = {}
    fixed = {"compute_s": 5e-5, "memory_s": 6e-4}
    earlier = rounds.EagerBefore((before_s,) * 4, fixed | {"memory_s": copy_before_s})
    rounds.compare_with_eager_before(
        SimpleNamespace(note=noted.update), earlier, (after_s,) * 16, [fixed, fixed]
    )
    assert bool(noted) == disturbed


def timed(samples: Sequence[float], *, warm_s: float, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return what a process that times finds, with one arm of these samples and both clocks."""
    arm = {"calls": len(samples), "samples_s": samples, "wall_s": samples, "cpu_s": samples}
    return {
        "eager": arm,
        "compile": {"warm_s": warm_s, "warm_cpu_s": 2 * warm_s, "graphs": 9},
        "phase_s": {"timing": 1.0},
    } | more


def test_samples_of_all_processes_follow_one_another() -> None:
    found = merge({}, [timed([1.0, 2.0], warm_s=1), timed([3.0, 4.0, 5.0], warm_s=1)])
    assert found["rounds"] == [2, 3]
    assert found["eager"]["samples_s"] == found["eager"]["wall_s"] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert found["eager"]["calls"] == 2
    assert "compiled" not in found


def test_an_arm_that_only_one_process_has_is_left_out() -> None:
    arm = {"calls": 1, "samples_s": [1.0], "wall_s": [1.0], "cpu_s": [1.0]}
    found = merge({}, [timed([1.0], warm_s=1, compiled=arm), timed([1.0], warm_s=1)])
    assert "compiled" not in found


def test_the_cold_compile_is_of_the_first_process_and_the_warm_one_the_median_of_the_others() -> (
    None
):
    cold = {"compile": {"cold_s": 9.0, "graphs": 1}, "phase_s": {"compile": 9.0, "timing": 0.5}}
    found = merge(cold, [timed([1.0], warm_s=1.0), timed([1.0], warm_s=3.0)])
    assert found["compile"] == {"cold_s": 9.0, "graphs": 9, "warm_s": 2.0, "warm_cpu_s": 4.0}
    assert found["phase_s"] == {"compile": 9.0, "timing": 2.5}


def test_warnings_of_all_processes_are_added_up() -> None:
    one, two = ([{"text": "a", "count": n}] for n in (1, 2))
    found = merge({"warnings": one}, [timed([1.0], warm_s=1, warnings=two)])
    assert found["warnings"] == [{"text": "a", "count": 3}]


def test_what_failed_to_compile_has_its_eager_times() -> None:
    found = merge(
        {"compile": {"cold_s": None}},
        [{k: v for k, v in timed([1.0], warm_s=1).items() if k != "compile"}],
    )
    assert found["eager"]["samples_s"] == [1.0]
    assert found["compile"] == {"cold_s": None}


def starved(**changes: Any) -> Failure:  # noqa: ANN401
    failure = Failure(
        phase="timing", failure_class="out_of_memory", exception="RuntimeError", message="",
        where="", output_tail="",
    )  # fmt: skip
    return replace(failure, **changes)


def test_only_who_may_have_lacked_memory_is_starved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ivhl.measure.lanes.oom_kills", lambda: 3)
    killed = starved(failure_class="crash", exception="SIGKILL")
    assert is_starved(starved(), 3)
    assert is_starved(killed, 2)
    assert not is_starved(killed, 3)  # by a person
    assert not is_starved(starved(exception=""), 3)  # at its own limit
    assert not is_starved(starved(failure_class="wrong"), 2)
    assert not is_starved(None, 2)


def test_a_process_that_is_run_again_is_not_blamed_for_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = asdict(starved())
    del told["output_tail"]
    notes = [{"failure": told, "done": True}, {"device": "cpu", "done": True}]

    def launch(_: Launcher, job: Job, **__: object) -> Ending:
        with Path(job.journal).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps({"findings": notes.pop(0)}) + "\n")
        return Ending(how="exit", code=0, seconds=1.0, peak_bytes=0)

    monkeypatch.setattr(Launcher, "launch", launch)
    run = make_run(tmp_path)
    launcher = launcher_of(run, tmp_path)
    failures = [run_stage(run, CASES[0], tmp_path, "time", launcher)[1] for _ in range(2)]
    assert [failure is not None for failure in failures] == [True, False]


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("still", [False, True])
def test_who_ran_out_of_memory_beside_another_is_timed_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_once: int, still: bool
) -> None:
    asked: list[tuple[int, bool]] = []

    def run_stage(*_: object, process: int, turns: Path | None, **__: object) -> Stage:
        asked.append((process, turns is not None))
        failure = starved() if still or (turns is not None and process == 1) else None
        return {"number": process}, failure, 1.0

    monkeypatch.setattr("ivhl.measure.lanes.run_stage", run_stage)
    monkeypatch.setattr(Launcher, "start", lambda _: None)
    lanes = Lanes(make_run(tmp_path), tmp_path)
    lanes.n = at_once
    (found,) = time_in_turns([Timing(lanes, CASES[0], tmp_path, "time")], PROCESSES)
    lanes.close()
    beside = [(0, True), (1, True)] if at_once > 1 else []
    assert sorted(asked[: len(beside)]) == beside
    alone = [(0, False)] if still else [(0, False), (1, False)]
    assert asked[len(beside) :] == alone
    assert [failure is not None for _, failure, _ in found] == [still] * len(alone)


def cost(_: dict[str, int]) -> Cost:
    return Cost(flops=1.0, bytes=1.0, memory=600.0)


HUGE = [replace(c, workload=replace(EMPTY_WORKLOAD, cost=f"{__name__}:cost")) for c in CASES]


@pytest.mark.parametrize(("limit", "beside"), [(1199, False), (1200, True)])
def test_processes_that_together_would_fill_the_memory_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, limit: int, beside: bool
) -> None:
    both = threading.Barrier(2, timeout=5)
    timed: list[bool] = []
    compiled: list[Case] = []

    def run_stage(*_: object, turns: Path | None, **__: object) -> Stage:
        timed.append(turns is not None)
        return {}, None, 1.0

    def compile_case(_: Run, case: Case, *__: object) -> CompiledCase:
        if case not in HUGE or beside:
            both.wait()
        compiled.append(case)
        folder = tempfile.TemporaryDirectory(dir=tmp_path)
        return CompiledCase(folder=folder, findings={"of": case}, failure=None, seconds=0, load=0)

    monkeypatch.setattr("ivhl.measure.lanes.run_stage", run_stage)
    monkeypatch.setattr("ivhl.measure.lanes.compile_case", compile_case)
    monkeypatch.setattr(Launcher, "start", lambda _: None)
    lanes = Lanes(make_run(tmp_path, effort=Effort(memory_limit=limit)), tmp_path)
    lanes.begin()
    time_in_turns([Timing(lanes, HUGE[0], tmp_path, "time")], PROCESSES)
    assert timed == [beside, beside]
    others = (make_case("c"), make_case("d"))
    cases = HUGE if beside else [others[0], HUGE[0], others[1]]
    done = lanes.compile(cases)
    lanes.close()
    assert [one.findings["of"] for one in done] == cases
    assert beside or compiled[-1] is HUGE[0]
    for one in done:
        one.folder.cleanup()


def test_who_ran_out_of_memory_beside_another_is_compiled_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def compile_case(_: Run, case: Case, *__: object) -> CompiledCase:
        asked.append(case.variant.name)
        failure = starved() if asked.count(case.variant.name) == 1 else None
        folder = tempfile.TemporaryDirectory(dir=tmp_path)
        return CompiledCase(folder=folder, findings={}, failure=failure, seconds=0, load=0)

    monkeypatch.setattr("ivhl.measure.lanes.compile_case", compile_case)
    monkeypatch.setattr(Launcher, "start", lambda _: None)
    lanes = Lanes(make_run(tmp_path), tmp_path)
    lanes.begin()
    (alone,) = lanes.compile(CASES[:1])
    assert alone.failure is not None
    asked.clear()
    both = lanes.compile(CASES)
    lanes.close()
    assert sorted(asked[:2]) == ["a", "b"]
    assert asked[2:] == ["a", "b"]
    assert [one.failure for one in both] == [None, None]
    for one in (alone, *both):
        one.folder.cleanup()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("workloads", "now", "kept"),
    [("m:W", None, True), ("bench", "a" * 64, True), ("bench", "b" * 64, False)],
)
def test_a_changed_folder_of_benchmarks_is_measured_again_at_the_same_commit(
    tmp_path: Path,
    done: list[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    workloads: str,
    now: str | None,
    kept: bool,
) -> None:
    hashes = [None if now is None else "a" * 64]
    monkeypatch.setattr(
        "ivhl.measure.earlier.sources_of", lambda *_: Sources("p" * 64, hashes[-1])
    )
    run = make_run(tmp_path, workloads=workloads)
    (record,) = records_of(run, CASES[:1])
    assert record.benchmark == hashes[0]
    hashes.append(now)
    done.clear()
    records_of(run, CASES[:1])
    assert (done == []) is kept


@pytest.mark.parametrize(
    ("failure_class", "new", "seeded"),
    [("import", True, False), ("crash", True, True), ("import", False, True)],
)
def test_what_cannot_be_imported_fails_before_the_first_compile_of_a_new_cell(
    failure_class: FailureClass,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    done: list[str],
    *,
    new: bool,
    seeded: bool,
) -> None:
    failure = Failure(
        phase="import", failure_class=failure_class, exception="ModuleNotFoundError",
        message="No module named 'x'", where="calls.py:1", output_tail="",
    )  # fmt: skip
    asked: list[str] = []

    def launch(_run: Run, case: Case, *_: object, **__: object) -> Any:  # noqa: ANN401
        asked.append(case.name)
        return {}, failure, 1.0

    monkeypatch.setattr(runner, "lacks_bytecode", lambda: new)
    monkeypatch.setattr(runner, "run_stage", launch)
    made = records_of(make_run(tmp_path))
    assert len(made) == len(CASES)
    assert ("seed" in done) is seeded
    assert len(asked) == new  # both cases are of one module
    if not seeded:
        assert {record.failure for record in made} == {failure}
        assert done == ["look at cpu"]


def test_lanes_get_ready_side_by_side_and_share_what_they_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: list[Path] = []
    together = threading.Barrier(2, timeout=5)

    def start(launcher: Launcher) -> object:
        if threading.current_thread() is not threading.main_thread():
            together.wait()
            ready.append(launcher.cache)
        return launcher

    monkeypatch.setattr(Launcher, "start", start)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    lanes = Lanes(make_run(tmp_path), tmp_path)
    make_seed(make_run(tmp_path), CASES[0], lanes)
    lanes.close()
    assert ready == [lanes.first.cache, lanes.first.cache]


@pytest.mark.parametrize(
    "words",
    [
        ("--memory-limit", "inf"),
        ("--memory-limit", "nan"),
        ("--deadline", "nan"),
        ("--threads", "-1"),
        ("--commit", "../../../x"),
        ("--commit", "HEAD"),
    ],
)
def test_numbers_and_hashes_on_the_command_line_are_checked(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(words)
    assert f"argument {words[0]}: must be" in capsys.readouterr().err


def test_a_message_of_measured_code_is_printed_and_not_obeyed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show("finished", CASES[0], make_failure("inputs", "\x1b[2J caf\udce9\n::error::"))
    assert capsys.readouterr().out.endswith("inputs: \\x1b[2J caf\\udce9\\n::error::\n")


def test_a_process_whose_folder_was_removed_is_a_failure_of_the_case(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    run = make_run(tmp_path)
    found, failure, _ = run_stage(run, CASES[0], gone, "time", launcher_of(run, gone))
    assert found == {}
    assert failure is not None
    assert failure.failure_class == "crash"


def test_what_no_reader_takes_is_a_failure_and_no_record(tmp_path: Path) -> None:
    arm = {"calls": 1, "samples_s": [1e-3] * 8, "wall_s": [1e-3] * 8, "cpu_s": [1e-3] * 8}
    timed: dict[str, Any] = dict.fromkeys(("eager", "eager_again", "compiled"), arm)
    about: dict[str, Any] = {"duration_s": 1.0, "load": None, "in_cell": False}
    run = make_run(tmp_path)
    facts = {"cold_s": 1.0, "graph_breaks": [], "recompiles": [], "frames_total": 1}
    facts |= {"frames_ok": 1, "graphs": 1, "calls_captured": 3}
    compiled = {"compile": facts}
    good = outcome.checked_record(run, CASES[0], (compiled, [timed]), None, **about)
    assert good.speedup is not None
    for name, value, said in (
        ("draws", "three", "draws: must be"),
        ("draws", -1, "draws: must be from 0"),
        ("gil", 1, "conditions.gil: must be"),
        ("compiled", {**arm, "samples_s": [0.0] * 8}, "Error"),
        ("compiled", {"calls": 1}, "KeyError"),
        ("warnings", [{"text": "x" * 70_000, "count": 1}], "warnings.0.text: must have at most"),
        ("phase_s", {"../x": 1.0}, "phase_s: must be a phase of a case"),
    ):
        findings = (compiled, [timed | {name: value}])
        bad = outcome.checked_record(run, CASES[0], findings, None, **about)
        assert bad.failure is not None
        assert "reported what no case does" in bad.failure.message
        assert said in bad.failure.message
        read_record(to_json(bad).encode())


def test_no_nursery_gets_an_order_before_its_last_one_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy: set[Launcher] = set()
    used: list[tuple[int, Launcher]] = []
    last = threading.Event()

    def run_stage(*arguments: object, process: int, **_: object) -> Stage:
        launcher = arguments[-1]
        assert isinstance(launcher, Launcher)
        assert launcher not in busy
        busy.add(launcher)
        used.append((process, launcher))
        if process == 0:  # it ends after all others
            assert last.wait(5)
        elif process == 7:
            last.set()
        busy.remove(launcher)
        return {}, None, 0.0

    monkeypatch.setattr("ivhl.measure.lanes.run_stage", run_stage)
    monkeypatch.setattr(Launcher, "start", lambda _: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    lanes = Lanes(make_run(tmp_path, effort=Effort(processes=8)), tmp_path)
    (found,) = time_in_turns([Timing(lanes, CASES[0], tmp_path, "time")], 8)
    assert len(found) == 8
    lanes.close()
    assert sorted(number for number, _ in used) == list(range(8))
    # The first two are of different nurseries, whose memory differs.
    assert len({launcher for number, launcher in used if number < 2}) == 2


@pytest.mark.parametrize("at_once", [1, 2])
def test_processes_of_two_commits_alternate_and_one_that_fails_ends_only_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    asked: list[tuple[str, int, str]] = []

    def run_stage(
        run: Run, *_: object, process: int, turns: Path | None, **_more: object
    ) -> Stage:
        asked.append((run.commit[0], process, str(turns)))
        failed = run.commit[0] == "b" and process == 1
        return {"of": (run.commit[0], process)}, make_failure().failure if failed else None, 1.0

    monkeypatch.setattr("ivhl.measure.lanes.run_stage", run_stage)
    monkeypatch.setattr(Launcher, "start", lambda _: None)
    timings = []
    for commit in "ab":
        (folder := tmp_path / commit).mkdir()
        lanes = Lanes(make_run(tmp_path, commit=commit * 40), folder)
        lanes.n = at_once
        timings.append(Timing(lanes, CASES[0], folder, "time"))
    stages = time_in_turns(timings, 4)
    for one in timings:
        one.lanes.close()
    kept = [[found["of"] for found, _, _ in one] for one in stages]
    if at_once == 1:
        assert [commit for commit, _, _ in asked] == ["a", "b", "b", "a", "a", "a"]
        assert kept == [[("a", n) for n in range(4)], [("b", 0), ("b", 1)]]
    else:
        assert kept == [[(commit, n) for n in range(4)] for commit in "ab"]
    # One process at a time is timed, of either commit.
    assert {turns for _, _, turns in asked} == {
        str(tmp_path / "a" / "turns") if at_once > 1 else "None"
    }


def test_two_commits_are_measured_side_by_side_whatever_was_measured_before(
    tmp_path: Path, done: list[str]
) -> None:
    runs = [make_run(tmp_path, commit=commit * 40, effort=Effort(force=True)) for commit in "ab"]
    records_of(runs[0])
    done.clear()
    shown: list[RunRecord] = []
    run_in_turns(runs, CASES, lambda *event: shown.extend(filter(None, event[2:])))
    assert done == ["look at cpu", "seed", "seed", "compile a b", "compile a b", "a", "b"]
    lines = [line for one in runs for line in one.record_file.read_bytes().splitlines()]
    written = [read_record(line) for line in lines]
    assert [r.commit[0] for r in written] == ["a", "a", "a", "a", "b", "b"]
    assert [record.commit[0] for record in shown] == ["b", "b"]


def test_the_same_code_is_measured_once_and_other_code_side_by_side(
    tmp_path: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, head = (make_run(tmp_path, commit=commit * 40) for commit in "ab")
    later = make_run(tmp_path, commit="c" * 40)

    def reached(run: Run, _: object) -> dict[str, Sources]:
        here = "c" * 64 if run == later else "1" * 64
        other = {"a": Sources(here, None), "b": Sources(run.commit[0] * 64, None)}
        return {case.name: other[case.variant.name] for case in CASES}

    measure = runner.time_cases

    def measured(commits: Any, cases: Any, *more: Any) -> list[list[RunRecord]]:  # noqa: ANN401
        rows = measure(commits, cases, *more)
        runs = {one.run.commit: one.run for one in commits}
        return [
            [replace(r, sources=reached(runs[r.commit], ())[case.name].project) for r in row]
            for case, row in zip(cases, rows, strict=True)
        ]

    monkeypatch.setattr(runner, "time_cases", measured)
    monkeypatch.setattr(runner, "sources_at", reached)
    events: list[tuple[str, str]] = []

    def note(event: str, case: Case, _: object) -> None:
        events.append((event, case.variant.name))

    run_in_turns((base, head), CASES, note)
    assert [step for step in done if step.startswith("compile")] == [
        "compile a", "compile b", "compile b"
    ]  # fmt: skip
    assert events == [
        ("started", "a"), ("unchanged", "a"), ("started", "b"), ("finished", "b")
    ]  # fmt: skip
    (copied, own) = [read_record(line) for line in head.record_file.read_bytes().splitlines()]
    assert (copied.variant, copied.same_as) == ("a", base.commit)
    assert (own.variant, own.same_as) == ("b", None)
    # Killed or not, what both have is not measured again.
    done.clear()
    events.clear()
    run_in_turns((base, head), CASES, note)
    assert done == []
    assert events == [("kept", "a"), ("kept", "b")]
    # The base has records of both, and they would be of another hour than those of a new head.
    run_in_turns((base, later), CASES, note)
    assert [step for step in done if step.startswith("compile")] == ["compile a b"] * 2


def test_each_commit_has_the_sources_of_its_own_folder(tmp_path: Path) -> None:
    listed = (
        "from ivhl.workload import Variant, Workload\n"
        "WORKLOADS = (Workload(name='planted.w', version=1, title='w',"
        " make_inputs='planted.work:inputs', eager='planted.work:eager',"
        " reference='planted.work:eager', sizes={'small': (1,)},"
        " default_size='small', outputs=('y',),"
        " variants=(Variant(name='v', call='planted.work:eager'),)),)\n"
    )
    texts = {"a": "return x", "b": "return x  # the same", "c": "return 2 * x"}
    found = {}
    case = SimpleNamespace(name="planted.w/small/v")
    (tmp_path / "scratch").mkdir()
    for name, text in texts.items():
        package = tmp_path / name / "planted"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "listed.py").write_text(listed)
        (package / "work.py").write_text(f"def inputs(): pass\ndef eager(x):\n    {text}\n")
        run = make_run(
            tmp_path, project="planted", workloads="planted.listed:WORKLOADS",
            project_path=str(tmp_path / name),
        )  # fmt: skip
        found[name] = sources_at(run, [case])  # type: ignore[list-item]
    assert found["a"] == found["b"] != found["c"]
    assert len(found["a"][case.name].project) == len(found["c"][case.name].project) == 64
    broken = make_run(tmp_path, workloads="nowhere:WORKLOADS")
    assert sources_at(broken, [case]) == {}  # type: ignore[list-item]


def test_a_project_that_is_not_installed_precedes_what_is(tmp_path: Path) -> None:
    laid = tmp_path / "projects" / "b"
    for name, version in (("torch", "0.0.1"), ("planted", "2.0")):
        about = laid / f"{name}-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    packages = installed_packages(str(laid))
    assert [one for one in packages if one.startswith(("planted==", "torch=="))] == [
        "planted==2.0",
        "torch==0.0.1",
    ]
    run = make_run(tmp_path, project_path=str(laid))
    harness, project, *_ = case_environment(run, tmp_path)["PYTHONPATH"].split(os.pathsep)
    assert (Path(harness) / "ivhl" / "measure").is_dir()
    assert project == str(laid)
    message = f"at {laid}/planted/work.py:3  # projects/b/planted/work.py:4"
    failure = make_failure(message=message).failure
    record = outcome.make_record(run, CASES[0], {}, failure, duration_s=1.0, load=0.5)
    assert record.failure is not None
    assert record.failure.message == "at planted/work.py:3  # planted/work.py:4"


def test_a_commit_with_another_version_of_the_workload_does_not_answer() -> None:
    job = Job(
        project="demo", workloads="m:W", workload="ops.empty", size="small", variant="a",
        effort=Effort(), stage="time", journal="", version=1,
    )  # fmt: skip
    refuse_other_version(CASES[0], job)
    with pytest.raises(CaseError, match="this commit has version 1, not 2") as refused:
        refuse_other_version(CASES[0], replace(job, version=2))
    assert refused.value.failure_class == "absent"


@pytest.mark.parametrize(
    ("laid", "measured"), [("ab", ["a", "b"]), ("a", ["a"]), ("b", ["b"]), ("", None)]
)
def test_a_cell_measures_the_commits_that_could_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, laid: str, measured: list[str] | None
) -> None:
    run = make_run(tmp_path)
    settings = Settings.of_checkout(
        tmp_path,
        project="demo",
        workloads="m:W",
        machine=run.machine,
        results=tmp_path / "results",
    )
    (tmp_path / ".asv").mkdir()
    settings = replace(settings, base="a" * 40 if measured else None)
    seen: list[list[tuple[str, str | None]]] = []
    monkeypatch.setattr(suite, "read_settings", lambda: settings)
    monkeypatch.setattr(Settings, "cases", lambda _: CASES)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def note(runs: Sequence[Run], *_: object) -> None:
        seen.append([(run.commit[0], run.project_path) for run in runs])

    monkeypatch.setattr(suite, "run_in_turns", note)
    monkeypatch.setattr(suite, "run_cases", lambda run, *more: note([run], *more))
    monkeypatch.setenv("IVHL_CELL", json.dumps(asdict(run.cell)))
    monkeypatch.setenv("IVHL_COMMIT", "b" * 40)
    for name, variable in (("a", "IVHL_BASE"), ("b", "IVHL_PROJECT")):
        if name in laid:
            monkeypatch.setenv(variable, f"/cell/projects/{name}")
    suite.measure_cell()
    expected = [(name, f"/cell/projects/{name}") for name in measured or ()]
    assert seen == [expected if measured else [("b", None)]]


@pytest.mark.parametrize(
    ("free_gib", "n", "together"), [(0, 1, 1), (1, 1, 1), (7, 3, 1), (32, 16, 8), (139, 16, 8)]
)
def test_processes_on_a_gpu_are_as_many_as_its_memory_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_gib: int, n: int, together: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr("ivhl.measure.lanes.free_bytes", lambda: free_gib << 30)
    lanes = Lanes(make_run(tmp_path, effort=Effort(device="cuda")), tmp_path)
    lanes.close()
    assert lanes.n == n
    assert lanes.cases_in_turns(1) == together
    assert lanes.cases_in_turns(2) == max(1, together // 2)


@pytest.mark.parametrize(("room", "fits"), [(599, False), (600, True)])
def test_a_case_on_a_gpu_needs_room_beside_the_context_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, room: int, fits: bool
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr("ivhl.measure.lanes.free_bytes", lambda: 4 * CONTEXT_BYTES)
    lanes = Lanes(make_run(tmp_path, effort=Effort(device="cuda")), tmp_path)
    lanes.close()
    assert lanes.n == 2
    monkeypatch.setattr("ivhl.measure.lanes.CONTEXT_BYTES", 2 * CONTEXT_BYTES - room)
    assert lanes.leaves_room(HUGE[0]) is fits


def test_on_a_gpu_cases_take_turns_and_what_times_kernels_compiles_alone_and_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = replace(
        make_case("tuned"),
        variant=Variant(name="tuned", call="m:f", mode="max-autotune", devices=("cuda",)),
    )
    cases = (tuned, *(make_case(name) for name in "abc"))
    compiling: list[str] = []
    beside: list[tuple[str, tuple[str, ...]]] = []
    turns_of: dict[str, set[str]] = {}

    def compile_case(_: Run, case: Case, *__: object) -> CompiledCase:
        compiling.append(case.variant.name)
        beside.append((case.variant.name, tuple(compiling)))
        compiling.remove(case.variant.name)
        folder = tempfile.TemporaryDirectory(dir=tmp_path)
        return CompiledCase(folder=folder, findings={}, failure=None, seconds=0, load=0)

    def run_stage(_: Run, case: Case, *__: object, turns: Path | None, **___: object) -> Stage:
        turns_of.setdefault(case.variant.name, set()).add(str(turns))
        return {}, make_failure().failure, 1.0

    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr("ivhl.measure.lanes.free_bytes", lambda: 64 << 30)
    monkeypatch.setattr("ivhl.measure.lanes.compile_case", compile_case)
    monkeypatch.setattr("ivhl.measure.lanes.run_stage", run_stage)
    monkeypatch.setattr(runner, "make_seed", lambda _, __, lanes: lanes.begin())
    monkeypatch.setattr(Launcher, "start", lambda _: None)
    run = make_run(tmp_path, effort=Effort(device="cuda"))
    records = records_of(run, cases)
    assert [record.variant for record in records] == ["a", "b", "c", "tuned"]
    assert [name for name, _ in beside][-1] == "tuned"
    assert beside[-1] == ("tuned", ("tuned",))
    # Eight processes are four cases: the first three share their turns.
    assert len({frozenset(turns) for name, turns in turns_of.items() if name != "tuned"}) == 1
    assert turns_of["tuned"].isdisjoint(turns_of["a"])


def test_references_are_loaded_without_a_warning_of_ours(tmp_path: Path) -> None:
    """PyTorch 2.4.1 and 2.5.1 warn of a load that does not say what the file may hold.

    The record counted that as a warning of the code under test.
    """

    def load(path: Path, *, weights_only: bool | None = None) -> list[object]:
        assert path == tmp_path
        if weights_only is None:
            warnings.warn("You are using `torch.load` with ...", FutureWarning, stacklevel=1)
        return ["references", "moves"]

    setup: Any = SimpleNamespace(
        journal=SimpleNamespace(enter=lambda _: None),
        job=SimpleNamespace(references=str(tmp_path)),
        torch=SimpleNamespace(load=load),
    )
    anchors = pytest.importorskip("ivhl.measure.anchors", reason="imports torch")
    with warnings.catch_warnings(record=True) as seen:
        assert anchors.run_reference(setup, None, []) == ("references", "moves")
    assert seen == []
