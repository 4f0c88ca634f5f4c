"""The parent process: runs the processes of each case and writes its record, even if they crash.

Never imports torch, so that a crash in torch cannot end the run.
"""

from __future__ import annotations

import json
import os
import queue
import random
import secrets
import shutil
import signal
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distributions, version
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from ivhl.errors import SpecError
from ivhl.instrument import INSTRUMENT, version_of
from ivhl.machine.memory import memory_limit, oom_kills
from ivhl.machine.stability import observe_stability
from ivhl.measure import cache
from ivhl.measure.effort import Effort
from ivhl.measure.intervals import clocks_disagree, paired_ratio
from ivhl.measure.job import Job, choose_clock
from ivhl.measure.process import Ending, Nursery, NurseryError, run_group, tail
from ivhl.measure.sources import Sources, reached_sources
from ivhl.measure.wheels import installed_wheels
from ivhl.records import (
    SCHEMAS,
    Arm,
    Calibration,
    Cell,
    CompileFacts,
    Conditions,
    Counted,
    Failure,
    FailureClass,
    Machine,
    Memory,
    OutputError,
    Phase,
    RecordedObservation,
    RunRecord,
    append_line,
    append_record,
    record_file,
)
from ivhl.workload import fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ivhl.workload import Case

Step = Literal["kept", "unchanged", "started", "finished"]

# A child's findings, its failure if it failed, and its duration in seconds.
Stage = tuple[dict[str, Any], "Failure | None", float]
# Workload, version, size, variant and device; commit, cell, lock, threads, instrument, image, and
# the hash of the benchmark.
CaseKey = tuple[str, int, str, str, str]
RunKey = tuple[str, str, str | None, int, str, str | None, str | None]

# The code that measures in a cell; it must be the same for every commit under test.
MEASURING_CODE = (
    "__init__.py",
    "errors.py",
    "instrument.py",
    "records.py",
    "workload.py",
    "machine",
    "measure",
)

# glibc returns large blocks to the kernel above a threshold that it raises when a process frees
# memory; the same eager code then takes 0.5 or 2 ms. These are the values that it would reach.
ALLOCATOR = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=67108864"
# Processes that time a case, and cases per core that are compiled before any is timed.
PROCESSES = 2
LARGEST_BATCH = 16
# Files and folders of a case that the compile cache keeps.
KEPT = ("inductor", "triton", "packages", "references.pt")
ARMS = ("eager", "eager_again", "formulation_eager", "compiled")
# After a failure in one of these phases, eager cannot be timed either.
BEFORE_TIMING: frozenset[Phase] = frozenset({"import", "inputs", "reference", "eager"})

# Variables that a cell inherits from the caller. Others could change the measurement (OMP_*, TORCH*,
# LD_PRELOAD, ...) and are dropped; of PYTHON*, only PYTHONPATH is kept.
KEPT_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "CC",
    "CXX",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Settings of one run in one cell, which all its records share.

    Attributes:
        project: Name of the installed project.
        workloads: See ``ivhl.workload.load_workloads``.
        results: Folder with one folder per machine.
        scratch: Folder for caches and output during the run.
        repeat: Beginning of the command that repeats a case, without ``--workload`` etc.
        cache: Folder of the compile cache; ``None`` keeps nothing.
        image: Digest of the image if this runs in a container, else ``None``.
    """

    project: str
    commit: str
    workloads: str
    cell: Cell
    machine: Machine
    results: str
    scratch: str
    repeat: str
    effort: Effort = field(default_factory=Effort)
    cache: str | None = None
    image: str | None = None

    @property
    def record_file(self) -> Path:
        """File for the records of this run."""
        return record_file(Path(self.results), self.machine.name, self.commit, self.cell.id)


def run_cases(
    run: Run,
    cases: Sequence[Case],
    on_step: Callable[[Step, Case, RunRecord | None], None] = lambda *_: None,
) -> None:
    """Measure every case without a record; write each record before the next case starts.

    Args:
        run: Settings of the run.
        cases: Cases in the order in which to run them.
        on_step: Called at each step of a case, with its record once that exists.

    Raises:
        OSError: If a record cannot be written (a full disk); records written before stay.
    """
    newest = {} if run.effort.force else newest_keys(run.record_file)
    Path(run.scratch).mkdir(parents=True, exist_ok=True)
    elsewhere = {} if run.effort.force else records_of_other_commits(run)
    todo = []
    for case in cases:
        if is_answered(run, case, newest):
            on_step("kept", case, None)
        elif data := same_subject(run, case, elsewhere):
            append_line(run.record_file, json.dumps(data, sort_keys=True, separators=(",", ":")))
            on_step("unchanged", case, None)
        else:
            todo.append(case)
    if not todo:
        return
    with (
        tempfile.TemporaryDirectory(prefix="seed-", dir=run.scratch) as folder,
        closing(Lanes(run, Path(folder))) as lanes,
    ):
        # Observe before the first child starts: from then on, the run itself is load.
        stability = observe_stability(run.effort.device)
        seed = make_seed(run, todo[0], lanes)
        expected = expected_compile_s(run)
        for batch in batches(todo, lanes.n, begun=bool(newest)):
            for case in batch:
                on_step("started", case, None)
            # Compile on all cores first, so that timing afterwards has the machine alone.
            dearest = sorted(batch, key=lambda c: -expected.get(case_key(run, c), 0.0))
            done = lanes.compile(dearest, seed)
            found = {case.name: one for case, one in zip(dearest, done, strict=True)}
            for case in batch:
                with found[case.name] as compiled:
                    record = measure_case(run, case, compiled, seed, lanes, stability)
                if record.failure is not None and compiled.key is not None:
                    # The cached code may have caused the failure: drop it and compile again.
                    cache.drop(Path(run.cache or ""), compiled.key)
                    with compile_case(run, case, seed, lanes.first) as fresh:
                        record = measure_case(run, case, fresh, seed, lanes, stability)
                append_record(run.record_file, record)
                on_step("finished", case, record)


def is_starved(failure: Failure | None, kills: int) -> bool:
    """Return whether a process failed for lack of memory while others ran beside it.

    Not if it reached its own limit, and not if a person killed it.

    Args:
        failure: Failure of the process.
        kills: Value of ``oom_kills`` before the process started.
    """
    if failure is None or not failure.exception:
        return False
    killed = failure.exception == "SIGKILL" and oom_kills() > kills
    return killed or failure.failure_class == "out_of_memory"


def batches(cases: Sequence[Case], n: int, *, begun: bool = False) -> Iterator[list[Case]]:
    """Yield batches of cases to compile together: ``n`` first, for an early result, then many.

    If the cell has ``begun`` in an earlier run, the first batch is large, too. Large batches keep
    all cores busy. Compiled code stays in the cache, so an interrupted run loses little.
    """
    left, size = list(cases), LARGEST_BATCH * n if begun else n
    while left:
        yield left[:size]
        left, size = left[size:], LARGEST_BATCH * n


def expected_compile_s(run: Run) -> dict[CaseKey, float]:
    """Return the compile seconds of earlier records of this cell, from any machine.

    Used to start the longest first, so that no core is left waiting for it at the end.
    """
    seconds: dict[CaseKey, float] = {}
    for path in Path(run.results).glob(f"*/records/*-{run.cell.id}.jsonl"):
        for case, _, data in read_final(path):
            cold = (data.get("compile") or {}).get("cold_s")
            if type(cold) is float:
                seconds[case] = cold
    return seconds


def is_answered(run: Run, case: Case, newest: dict[CaseKey, RunKey]) -> bool:
    """Return whether the newest record of a case was made under this run's conditions.

    Only the newest counts, because all views show it.
    """
    made = newest.get(case_key(run, case))
    if made is None or made[:-1] != run_key(run):
        return False
    # A folder of benchmarks may have changed since, also at the same commit.
    return ":" in run.workloads or made[-1] == benchmark_of(run, case)


def case_key(run: Run, case: Case) -> CaseKey:
    """Return the key of what a record of the case measures."""
    workload = case.workload
    return (workload.name, workload.version, case.size, case.variant.name, run.effort.device)


def run_key(run: Run) -> tuple[str, str, str | None, int, str, str | None]:
    """Return how a record of this run is made, whatever the benchmark."""
    cell = run.cell
    return (run.commit, cell.id, cell.lock_sha256, run.effort.threads, str(INSTRUMENT), run.image)


def records_of_other_commits(run: Run) -> dict[CaseKey, dict[str, Any]]:
    """Return each case's newest final record that differs from this run only in its commit.

    Empty for existing environments: their packages may have changed.
    """
    found: dict[CaseKey, dict[str, Any]] = {}
    if run.cell.lock_sha256 is None:
        return found
    wanted = run_key(run)[1:]
    for path in run.record_file.parent.glob(f"*-{run.cell.id}.jsonl"):
        for case, made, data in read_final(path):
            older = found.get(case)
            if made is None or made[1:-1] != wanted or not data.get("sources"):
                continue
            if older is None or data["recorded_at"] > older["recorded_at"]:
                found[case] = data
    return found


def same_subject(
    run: Run, case: Case, elsewhere: dict[CaseKey, dict[str, Any]]
) -> dict[str, Any] | None:
    """Return another commit's record as one of this commit, if the case reaches the same sources.

    Then there is nothing to measure. The record keeps its time of measurement, so that it does not
    count as another run.
    """
    data = elsewhere.get(case_key(run, case))
    here = sources_of(run, case)
    if data is None or here is None or (data["sources"], data.get("benchmark")) != here:
        return None
    return data | {
        "commit": run.commit,
        "same_as": data.get("same_as") or data["commit"],
        "command": repeat_command(run, case),
    }


def sources_of(run: Run, case: Case) -> Sources | None:
    """Return the hashes of the sources that the case reaches; ``None`` if that fails here."""
    try:
        return reached_sources(case, run.workloads, run.project, ran=False)
    except Exception:  # noqa: BLE001  (the process of the case will report what is wrong)
        return None


def benchmark_of(run: Run, case: Case) -> str | None:
    """Return the hash of the benchmark; ``None`` where it is part of the project, or no Python."""
    found = sources_of(run, case)
    return None if found is None else found.benchmark


def newest_keys(path: Path) -> dict[CaseKey, RunKey]:
    """Return the conditions of each case's newest record, if that record is final.

    Unreadable lines are skipped: the case is measured again, and ``ivhl results`` reports the line.
    """
    found: dict[CaseKey, RunKey] = {}
    for case, made, _ in read_final(path):
        found.pop(case, None)
        if made is not None:
            found[case] = made
    return found


def read_final(path: Path) -> Iterator[tuple[CaseKey, RunKey | None, dict[str, Any]]]:
    """Yield, for each record of a file, its case key, its run key and the record.

    The run key is ``None`` if the record is not final.
    """
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, TypeError, KeyError, IndexError, AttributeError):
            data = json.loads(line)
            if data["schema"] not in SCHEMAS:
                continue
            cell, conditions = data["cell"], data["conditions"]
            case = (
                data["workload"],
                data["workload_version"],
                data["size"],
                data["variant"],
                conditions["device"].split()[0],
            )
            made = (
                data["commit"],
                cell["id"],
                cell["lock_sha256"],
                conditions["threads"],
                version_of(conditions["instrument"]),
                conditions.get("image"),  # not there outside of containers
                data.get("benchmark"),
            )
            yield case, made if is_final(data["failure"]) else None, data


def is_final(failure: dict[str, Any] | None) -> bool:
    """Return whether measuring again would be expected to give the same result.

    Not final: a cell that could not be installed, and a process killed by someone else or for its
    time or memory limit.
    """
    if failure is None:
        return True
    # The last two depend on limits that another run may set higher.
    passing = ("environment", "build", "unavailable", "timeout", "out_of_memory")
    return failure["failure_class"] not in passing and failure["exception"] != "SIGKILL"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seed:
    """The compile cache from which every case of a cell starts.

    Attributes:
        cache: Inductor's cache with only precompiled headers and the throwaway.
        skip_isa_check: Whether to skip Inductor's check that the vector instructions work.
    """

    cache: Path
    skip_isa_check: bool


class Launcher:
    """Starts the processes of cases: forked from a nursery, which has used the compiler, or new.

    Forks only on the CPU, because CUDA does not survive a fork.

    Args:
        run: What the cases have in common.
        folder: Where the nursery's output and caches go.
        cache: Inductor's cache that the nursery uses, from which those of the cases are copied.
            Several may share one; Inductor has locks for that. ``None`` means one of its own.
    """

    def __init__(self, run: Run, folder: Path, cache: Path | None = None) -> None:
        self._run = run
        self._folder = folder
        self.cache = cache or folder / "inductor"
        self.may_fork = run.effort.device == "cpu" and sys.platform == "linux"
        self._nursery: Nursery | None = None
        self._starting = threading.Lock()
        self._closed = False

    def launch(
        self, job: Job, *, environment: dict[str, str], output: Path, deadline_s: float
    ) -> Ending:
        """Run one process of a case, with its parent filled in, and return how it ended."""
        nursery = self.start()
        parent = nursery.pid if nursery else os.getpid()
        argument = json.dumps(asdict(replace(job, parent=parent)))
        limit = self._run.effort.memory_limit or memory_limit()
        if nursery is None:
            return run_group(
                [sys.executable, "-m", "ivhl.measure.case", argument],
                environment=environment,
                output=output,
                deadline_s=deadline_s,
                memory_limit=limit,
            )
        try:
            return nursery.run(
                ["ivhl.measure.case", argument],
                environment=environment,
                output=output,
                deadline_s=deadline_s,
                memory_limit=limit,
            )
        except NurseryError:
            # The nursery was killed, and its child with it. A retry in the same folder would find
            # the caches filled.
            self.restart()
            return Ending(how="signal", code=signal.SIGKILL, seconds=0.0, peak_bytes=0)

    def start(self) -> Nursery | None:
        """Return the nursery, started if necessary; ``None`` if it cannot run here."""
        with self._starting:
            if self._nursery is None and self.may_fork:
                self._start()
            return self._nursery

    def _start(self) -> None:
        # It is not to start Inductor's worker processes while it imports.
        environment = case_environment(self._run, self._folder) | {
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache),
            "TORCH_WARM_POOL": "0",
        }
        self._folder.mkdir(exist_ok=True)
        nursery = Nursery(environment=environment, output=self._folder / "nursery.txt")
        self._nursery = nursery  # before it is ready, so that it can be closed
        if self._closed:
            nursery.close()
        try:
            nursery.wait()
        except NurseryError:
            nursery.close()
            self._nursery = None
            self.may_fork = False

    def restart(self) -> None:
        """End the nursery; the next case starts a new one."""
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

    def close(self) -> None:
        """End the nursery, including one that is still starting."""
        self._closed = True
        self.restart()


def make_seed(run: Run, case: Case, lanes: Lanes) -> Seed:
    """Get all lanes ready: compile a throwaway, once per cell, which takes 10 to 20 s.

    What it leaves on disk is kept from run to run. Each nursery does so by itself, and what is
    forked from it knows all that it has found out. Where there is none, Inductor up to 2.6 also
    starts two processes that import torch, 5 s in every process that compiles, to see whether the
    vector instructions work. It is told that they do, if then it picks the same ones as by itself.
    When all this fails, each case fails the same way, with a record of its own.
    """
    launcher = lanes.first
    folder = launcher.cache.parent
    folder.mkdir()
    key = cache.key_of({"seed": "throwaway"} | what_compiles(run))
    kept = run.cache is not None and not run.effort.cold and launcher.may_fork
    if kept and cache.fetch(Path(run.cache or ""), key, folder) is not None:
        launcher.cache.mkdir(exist_ok=True)  # where nothing compiles, nothing was kept
        lanes.begin()
        return Seed(cache=launcher.cache, skip_isa_check=False)
    lanes.begin()
    lanes.wait()
    if launcher.start() is not None:
        launcher.cache.mkdir(exist_ok=True)
        if run.cache is not None:
            cache.keep(Path(run.cache), key, folder, ("inductor",), {})
        return Seed(cache=launcher.cache, skip_isa_check=False)
    launcher.cache.mkdir(parents=True, exist_ok=True)
    isa = []
    for skip in (False, True):
        seed = Seed(cache=launcher.cache, skip_isa_check=skip)
        findings, _, _ = run_stage(run, case, folder, "seed", seed, launcher, process=int(skip))
        isa.append(findings.get("isa"))
        if isa[0] is None:
            break
    same = isa[0] is not None and isa[0] == isa[-1]
    return Seed(cache=launcher.cache, skip_isa_check=same)


@dataclass(kw_only=True, slots=True)
class Compiled:
    """The outcome of compiling and judging a case; leaving the context removes its folder.

    Attributes:
        folder: Caches, journals and output of the case.
        load: One-minute load average before compiling.
        key: Entry of the compile cache that was used; ``None`` if it was compiled in this run.
    """

    folder: tempfile.TemporaryDirectory[str]
    findings: dict[str, Any]
    failure: Failure | None
    seconds: float
    load: float
    key: str | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the folder."""
        self.folder.cleanup()


class Lanes:
    """Starts the processes of cases: on all cores to compile, one at a time to measure.

    Args:
        run: Settings of the run.
        folder: Folder for output and caches that belong to no case.
    """

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        # At least two: processes forked from different nurseries have different memory layouts.
        self.n = max(2, os.cpu_count() or 1) if run.effort.device == "cpu" else 1
        self._nonce = secrets.randbits(62)
        self._launchers = [Launcher(run, folder / "lane-0")]
        self._launchers += [
            Launcher(run, folder / f"lane-{number}", self._launchers[0].cache)
            for number in range(1, max(self.n, PROCESSES))
        ]
        self._free: queue.SimpleQueue[Launcher] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(self.n)

    @property
    def first(self) -> Launcher:
        """The launcher that makes the seed."""
        return self._launchers[0]

    def seeds(self, case: Case, process: int) -> dict[str, int]:
        """Return the random seeds of one process, different in every process and run."""
        draw = random.Random(f"{self._nonce} {case.name} {process}")  # noqa: S311  (no secret of ours)
        return {"seed": draw.getrandbits(62), "secret": draw.getrandbits(62)}

    def compile(self, cases: Sequence[Case], seed: Seed) -> list[Compiled]:
        """Compile cases in parallel; return them in the given order."""
        before = oom_kills()
        small = [case for case in cases if self._leaves_room(case)]
        compiled = self._pool.map(lambda case: self._compile(case, seed), small)
        done = {case.name: one for case, one in zip(small, compiled, strict=True)}
        for case in cases:
            if case.name not in done:
                done[case.name] = compile_case(self._run, case, seed, self.first)
            elif len(small) > 1 and is_starved(done[case.name].failure, before):
                with done[case.name]:
                    done[case.name] = compile_case(self._run, case, seed, self.first)
        return [done[case.name] for case in cases]

    def _leaves_room(self, case: Case) -> bool:
        """Return whether memory has room for one such case per lane, by its declared cost."""
        limit = self._run.effort.memory_limit or memory_limit()
        return self._run.effort.device != "cpu" or fits(case, limit / self.n)

    def begin(self) -> None:
        """Start all lanes in parallel; each compiles as soon as it is ready."""
        for launcher in self._launchers[: self.n]:
            self._pool.submit(self._begin, launcher)

    def wait(self) -> None:
        """Wait until all lanes are ready: none then writes to what the cases copy."""
        for launcher in self._launchers[: self.n]:
            launcher.start()

    def _begin(self, launcher: Launcher) -> None:
        try:
            launcher.start()
        finally:
            self._free.put(launcher)

    def time(self, case: Case, folder: Path, stage: str, seed: Seed) -> list[Stage]:
        """Run the processes that time a case: prepared in parallel, timed one at a time."""
        turns = folder / "turns"
        # Started now, so that none starts while another process is timed.
        for launcher in self._launchers[:PROCESSES]:
            launcher.start()

        def one(number: int, turns: Path | None) -> Stage:
            return run_stage(
                self._run, case, folder, stage, seed,
                self._launchers[number % len(self._launchers)],
                process=number, seeds=self.seeds(case, number), turns=turns,
            )  # fmt: skip

        before = oom_kills()
        if self.n > 1 and self._leaves_room(case):
            stages = list(self._pool.map(one, range(PROCESSES), repeat(turns)))
            if not any(is_starved(failure, before) for _, failure, _ in stages):
                return stages
        stages = []
        for number in range(PROCESSES):
            stages.append(one(number, None))
            if stages[-1][1] is not None:
                break
        return stages

    def _compile(self, case: Case, seed: Seed) -> Compiled:
        launcher = self._free.get()
        try:
            return compile_case(self._run, case, seed, launcher)
        finally:
            self._free.put(launcher)

    def close(self) -> None:
        """End all processes."""
        for launcher in self._launchers:
            launcher.close()
        self._pool.shutdown(cancel_futures=True)


def compile_case(run: Run, case: Case, seed: Seed, launcher: Launcher) -> Compiled:
    """Compile one case in its own process with its own cache, and judge its outputs.

    Args:
        run: Settings of the run.
        case: Case to compile.
        seed: Cache to start from; it is copied.
        launcher: Starts the process.
    """
    began = time.monotonic()
    load = os.getloadavg()[0]
    folder = tempfile.TemporaryDirectory(prefix="case-", dir=run.scratch)
    here = Path(folder.name)
    key = None
    if run.cache is not None:
        key = cache.key_of(what_is_compiled(run, case))
        kept = None if run.effort.cold else cache.fetch(Path(run.cache), key, here)
        if kept is not None:
            seconds = time.monotonic() - began
            return Compiled(
                folder=folder, findings=kept, failure=None, seconds=seconds, load=load, key=key
            )
    shutil.copytree(seed.cache, here / "inductor")
    findings, failure, seconds = run_stage(run, case, here, "compile", seed, launcher)
    if failure is None and key is not None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        facts = findings.get("compile", {}) | {"cold_at": now}
        found = {
            "compile": {k: v for k, v in facts.items() if k.startswith("cold")},
            "sources": findings.get("sources"),
            "benchmark": findings.get("benchmark"),
        }
        if why := cache.keep(Path(run.cache or ""), key, here, KEPT, found):
            note = {"text": f"ivhl: the compiled code was not kept: {why}", "count": 1}
            findings.setdefault("warnings", []).append(note)
    return Compiled(folder=folder, findings=findings, failure=failure, seconds=seconds, load=load)


def what_is_compiled(run: Run, case: Case) -> dict[str, Any]:
    """Return, as JSON, everything that determines the result of compiling a case."""
    return {
        "case": case.name,
        "version": case.workload.version,
        "mode": case.mode,
        "sources": sources_of(run, case) or run.commit,
    } | what_compiles(run)


def what_compiles(run: Run) -> dict[str, Any]:
    """Return, as JSON, everything except the case that determines the result of compiling."""
    return {
        "device": run.effort.device,
        "threads": run.effort.threads,
        "lock": run.cell.lock_sha256,
        "packages": installed_packages(),
        "python": sys.version,
        "processor": run.machine.cpu,
        "image": run.image,
        "instrument": INSTRUMENT,
    }


def measure_case(  # noqa: PLR0917  (all are required)
    run: Run,
    case: Case,
    compiled: Compiled,
    seed: Seed,
    lanes: Lanes,
    stability: tuple[RecordedObservation, ...],
) -> RunRecord:
    """Time one case in its own processes and return its record, measured or failed.

    Args:
        run: Settings of the run.
        case: Case to measure.
        compiled: Outcome of compiling it.
        seed: Cache from which the cell's cases start.
        lanes: Starts the processes.
        stability: Observations about the machine before the first case.
    """
    here = Path(compiled.folder.name)
    findings, failure = compiled.findings, compiled.failure
    seconds = compiled.seconds
    timed: list[dict[str, Any]] = []
    stage = "time" if failure is None else "eager"
    if failure is None or failure.phase not in BEFORE_TIMING:
        for found, failed, took in lanes.time(case, here, stage, seed):
            seconds += took
            timed.append(found)
            if stage == "time":
                failure = failed
            if failed is not None:
                break
    return make_record(
        run,
        case,
        merge(findings, timed),
        failure or disturbance(timed),
        duration_s=seconds,
        load=compiled.load,
        stability=stability,
    )


def disturbance(timed: list[dict[str, Any]]) -> Failure | None:
    """Return the failure of a variant that changed eager's times, if all processes report it."""
    if not timed or not all(found.get("disturbed") for found in timed):
        return None
    return Failure(
        phase="timing",
        failure_class="side_effect",
        exception="",
        message=timed[0]["disturbed"],
        where="",
        output_tail="",
    )


def merge(compiled: dict[str, Any], timed: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the findings of all processes of a case.

    Samples are concatenated, process by process. The warm compile time is the median of the
    processes; other findings are those of the last process.
    """
    findings = dict(compiled)
    phases: Counter[str] = Counter(compiled.get("phase_s", {}))
    for found in timed:
        phases.update(found.get("phase_s", {}))
        findings |= {k: v for k, v in found.items() if k not in (*ARMS, "compile", "warnings")}
    findings["phase_s"] = {name: round(s, 3) for name, s in phases.items()}
    measured = [found for found in timed if "eager" in found]
    for name in ARMS:
        arms = [found[name] for found in measured if name in found]
        if arms and len(arms) == len(measured):
            findings[name] = {"calls": arms[0]["calls"]} | {
                clock: [s for arm in arms for s in arm[clock]]
                for clock in ("samples_s", "wall_s", "cpu_s")
            }
    if calibrated := [found["calibration"] for found in timed if "calibration" in found]:
        findings["calibration"] = {
            name: [s for one in calibrated for s in one[name]] for name in calibrated[0]
        }
    findings["rounds"] = [len(found["eager"]["samples_s"]) for found in measured]
    warm = [found["compile"] for found in timed if "compile" in found]
    if warm:
        facts = dict(warm[-1])
        for name in ("warm_s", "warm_cpu_s"):
            facts[name] = median(w[name] for w in warm)
        cold = compiled.get("compile", {})
        findings["compile"] = facts | {k: v for k, v in cold.items() if k.startswith("cold")}
    every = [w for found in (compiled, *timed) for w in found.get("warnings", [])]
    counts: Counter[str] = Counter()
    for one in every:
        counts[one["text"]] += one["count"]
    findings["warnings"] = [{"text": t, "count": n} for t, n in counts.most_common(50)]
    return findings


def run_stage(  # noqa: PLR0917  (as above)
    run: Run,
    case: Case,
    folder: Path,
    stage: str,
    seed: Seed,
    launcher: Launcher,
    *,
    process: int = 0,
    seeds: dict[str, int] | None = None,
    turns: Path | None = None,
) -> Stage:
    """Run one child; return its findings, its failure if it failed, and its seconds."""
    # A process that waits for its turn needs the time of the others as well.
    deadline_s = run.effort.deadline_s * (PROCESSES if turns else 1)
    name = f"{stage}-{process}"
    job = Job(
        project=run.project,
        workloads=run.workloads,
        workload=case.workload.name,
        size=case.size,
        variant=case.variant.name,
        effort=run.effort,
        stage=stage,
        process=process,
        journal=str(folder / f"{name}.jsonl"),
        references=str(folder / "references.pt"),
        turns=str(turns or ""),
        parent=os.getpid(),
        skip_isa_check=seed.skip_isa_check,
        mode=case.mode,
        **(seeds or {}),
    )
    # Emptied, because a repeated process must not inherit the findings of the first attempt.
    (folder / f"{name}.jsonl").write_bytes(b"")
    output = folder / f"{name}.txt"
    began = time.monotonic()
    ending = launcher.launch(
        job, environment=case_environment(run, folder), output=output, deadline_s=deadline_s
    )
    seconds = time.monotonic() - began
    phase, findings = read_journal(folder / f"{name}.jsonl")
    told = findings.setdefault("phase_s", {})
    told["start"] = max(0.0, seconds - sum(told.values()))
    return findings, failure_of(phase, findings, ending, output), seconds


def case_environment(run: Run, folder: Path) -> dict[str, str]:
    """Return the environment of a child: few inherited variables, and caches of its own.

    Each case needs its own cache folder: Inductor's FX graph cache ignores the number of threads,
    and a cache filled by another case would make a cold compile warm.
    """
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    threads = str(run.effort.threads)
    return kept | {
        # First the folder of this code: the child must import the same harness.
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")))
        ),
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        "GLIBC_TUNABLES": ALLOCATOR,
        # Read by ivhl.compile of the commit under test, so that eager code stays eager.
        "IVHL_MEASURING": "1",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "IVHL_PACKAGES": str(folder / "packages"),
        # Cases compile in parallel; Inductor's own workers would compete with them.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRITON_CACHE_DIR": str(folder / "triton"),
        # A shared remote cache would make cold compiles warm.
        "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0",
    }


def read_journal(path: Path) -> tuple[Phase, dict[str, Any]]:
    """Return the last phase that the child entered, and its findings.

    Skips a last line that was cut off when the child was killed.
    """
    phase: Phase = "import"
    findings: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            data = json.loads(line)
            phase = data.get("phase", phase)
            findings |= data.get("findings", {})
    return phase, findings


def failure_of(
    phase: Phase, findings: dict[str, Any], ending: Ending, output: Path
) -> Failure | None:
    """Return why the case failed, or ``None`` if it did not."""
    text = tail(output)
    if told := findings.get("failure"):
        return Failure(**told, output_tail=text)
    if findings.get("done") and ending.how == "exit" and ending.code == 0:
        return None
    failure_class: FailureClass = "crash"
    exception = ""
    if ending.how == "deadline":
        failure_class = "timeout"
        message = f"still in phase {phase} after {ending.seconds:.0f} s"
    elif ending.how == "memory":
        failure_class = "out_of_memory"
        message = f"killed at {ending.peak_bytes / 2**30:.1f} GiB of resident memory"
    elif ending.how == "signal":
        exception = ending.signal_name
        message = f"ended by {exception} in phase {phase}"
        if exception == "SIGKILL":
            message += " (from outside: by a person, or by the kernel for lack of memory)"
    else:
        exception = "SystemExit"
        message = f"exited with status {ending.code} in phase {phase} without a result"
    return Failure(
        phase=phase,
        failure_class=failure_class,
        exception=exception,
        message=message,
        where="",
        output_tail=text,
    )


def make_record(
    run: Run,
    case: Case,
    findings: dict[str, Any],
    failure: Failure | None,
    *,
    duration_s: float,
    load: float | None,
    stability: tuple[RecordedObservation, ...] | None = None,
    in_cell: bool = True,
) -> RunRecord:
    """Return the record of a case from its findings and its failure.

    ``in_cell`` says whether this process runs in the cell, so that its packages are the cell's.
    """
    arms = {name: arm_of(data) for name in ARMS if (data := findings.get(name))}
    clock = findings.get("clock", choose_clock(run.effort.device, run.effort.threads))
    eager, compiled = arms.get("eager"), arms.get("compiled")
    if clock == "cpu" and eager and compiled and clocks_disagree(eager, compiled):
        clock = "wall"
        arms = {name: replace(arm, samples_s=arm.wall_s or ()) for name, arm in arms.items()}
        eager, compiled = arms["eager"], arms["compiled"]
    formulation = arms.get("formulation_eager")
    rounds = tuple(findings.get("rounds", ()))
    speedup = formulation_speedup = None
    if failure is None and eager and compiled:
        speedup = paired_ratio(eager.samples_s, compiled.samples_s, rounds)
        if formulation:
            formulation_speedup = paired_ratio(formulation.samples_s, compiled.samples_s, rounds)
    aa = paired_ratio(eager.samples_s, arms["eager_again"].samples_s, rounds) if eager else None
    return RunRecord(
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 3),
        project=run.project,
        commit=run.commit,
        cell=run.cell,
        machine=run.machine,
        conditions=Conditions(
            device=findings.get("device", run.effort.device),
            threads=run.effort.threads,
            clock=clock,
            load_average=load,
            instrument=str(INSTRUMENT),
            python_full=sys.version.split()[0] if in_cell else run.cell.python,
            torch_full=findings.get("torch_full"),
            packages=installed_packages() if in_cell else (),
            image=run.image,
            stability=stability,
            wheels=installed_wheels() if in_cell else None,
            gil=findings.get("gil"),
        ),
        sources=findings.get("sources"),
        # A process that died has not reported it.
        benchmark=findings.get("benchmark") or (benchmark_of(run, case) if in_cell else None),
        workload=case.workload.name,
        workload_version=case.workload.version,
        size=case.size,
        variant=case.variant.name,
        mode=case.variant.mode,
        dtype=case.dtype,
        engine=case.variant.engine,
        failure=failure,
        speedup=speedup,
        aa=aa,
        formulation_speedup=formulation_speedup,
        eager=eager,
        eager_again=arms.get("eager_again"),
        formulation_eager=formulation,
        compiled=compiled,
        compile=compile_facts(findings.get("compile")),
        accuracy=tuple(OutputError(**e) for e in findings.get("accuracy", [])),
        memory=Memory(**findings["memory"]) if "memory" in findings else None,
        warnings=counted(findings.get("warnings", [])),
        command=repeat_command(run, case),
        rounds=rounds,
        draws=findings.get("draws"),
        prepare_s=findings.get("prepare_s"),
        finish_s=findings.get("finish_s"),
        phase_s=findings.get("phase_s"),
        calibration=Calibration(
            **{name: tuple(seconds) for name, seconds in findings["calibration"].items()}
        )
        if "calibration" in findings
        else None,
    )


def arm_of(data: dict[str, Any]) -> Arm:
    """Return an arm from its journal entry."""
    return Arm(
        calls=data["calls"],
        samples_s=rounded(data["samples_s"]),
        wall_s=rounded(data["wall_s"]),
        cpu_s=rounded(data["cpu_s"]),
    )


def rounded(samples: list[float]) -> tuple[float, ...]:
    """Round the samples to five digits: more are noise, and would make most of a record's size."""
    return tuple(float(f"{sample:.5g}") for sample in samples)


def failed_everywhere(
    run: Run, case: Case, *, phase: Phase, failure_class: FailureClass, message: str, output: str
) -> RunRecord:
    """Return the record of a case that could not start because its cell could not be set up."""
    assert phase in get_args(Phase)  # noqa: S101  (a mistake in ivhl, not of a user)
    failure = Failure(
        phase=phase,
        failure_class=failure_class,
        exception="",
        message=message,
        where="",
        output_tail=output[-4000:],
    )
    return make_record(run, case, {}, failure, duration_s=0.0, load=None, in_cell=False)


def compile_facts(data: dict[str, Any] | None) -> CompileFacts | None:
    """Return the facts about compiling from the journal."""
    if data is None:
        return None
    reasons = {name: counted(data[name]) for name in ("graph_breaks", "recompiles")}
    return CompileFacts(**{"cold_s": None, "warm_s": None} | data | reasons)


def counted(items: list[dict[str, Any]]) -> tuple[Counted, ...]:
    """Return the counted reasons or warnings of the journal."""
    return tuple(Counted(**item) for item in items)


def repeat_command(run: Run, case: Case) -> str:
    """Return the command that repeats this measurement."""
    words = [
        run.repeat,
        f"--workload {case.workload.name}",
        f"--size {case.size}",
        f"--variant {case.variant.name}",
    ]
    if case.mode is not None:
        words.append(f"--compile-mode {case.mode}")
    return " ".join([*words, *run.effort.options(), "--force"])


def installed_packages() -> tuple[str, ...]:
    """Return every distribution of this interpreter as ``name==version``, sorted."""
    return tuple(
        sorted({f"{d.name.lower().replace('_', '-')}=={d.version}" for d in distributions()})
    )


def this_cell() -> Cell:
    """Return this interpreter as an existing environment, which no lock describes.

    Raises:
        SpecError: If torch is not installed.
    """
    try:
        torch = version("torch").split("+")[0]
    except PackageNotFoundError:
        raise SpecError(
            "torch is not installed here", hint=f"{sys.executable} -m pip install torch"
        ) from None
    free_threaded = "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    python = f"{sys.version_info.major}.{sys.version_info.minor}{free_threaded}"
    return Cell(id=f"py{python}-torch{torch}", python=python, torch=torch, lock_sha256=None)
