"""The parent process: one child per case, one record per child, whatever happens to it.

Torch is never imported here, so nothing that torch does can end the run.
"""

from __future__ import annotations

import json
import os
import queue
import random
import re
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
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distributions, version
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from ivhl.errors import SpecError
from ivhl.instrument import INSTRUMENT, version_of
from ivhl.measure import cache
from ivhl.measure.intervals import clocks_disagree, paired_ratio
from ivhl.measure.job import Job, choose_clock
from ivhl.measure.process import Ending, Nursery, NurseryError, memory_limit, run_group, tail
from ivhl.measure.sources import reached_sources
from ivhl.measure.stability import observe
from ivhl.measure.wheels import installed_wheels
from ivhl.records import (
    SCHEMAS,
    Arm,
    Cell,
    CompileFacts,
    Conditions,
    Counted,
    Failure,
    FailureClass,
    Machine,
    Memory,
    Observation,
    OutputError,
    Phase,
    RunRecord,
    append_line,
    append_record,
    record_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ivhl.workload import Case

Step = Literal["kept", "unchanged", "started", "finished"]

# What a child found, why it failed if it did, and its seconds.
Stage = tuple[dict[str, Any], "Failure | None", float]
# Workload, version, size, variant and device; commit, cell, lock, threads, instrument, image.
CaseKey = tuple[str, int, str, str, str]
RunKey = tuple[str, str, str | None, int, str, str | None]

# What runs in a cell beside the project, and must be the same for every commit under test.
MEASURING_CODE = (
    "__init__.py",
    "errors.py",
    "instrument.py",
    "records.py",
    "workload.py",
    "measure",
)

# glibc gives large blocks back to the kernel or keeps them by a threshold that moves with what the
# process freed before; the same eager code then takes 0.5 or 2 ms. This is where it moves to.
ALLOCATOR = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=67108864"
DEADLINE_S = 600.0
# Processes in which a case is timed, and how many cases per core are compiled before any is timed.
PROCESSES = 2
LARGEST_BATCH = 16
# What of a case's folder is kept from run to run.
KEPT = ("inductor", "triton", "packages", "references.pt")
ARMS = ("eager", "eager_again", "formulation_eager", "compiled")
# A failure in one of these leaves nothing that eager could be timed on.
BEFORE_TIMING: frozenset[Phase] = frozenset({"import", "inputs", "reference", "eager"})

# What a cell gets of the caller's environment. Everything else that could change what is measured
# (OMP_*, TORCH*, LD_PRELOAD, ...) stays outside; of PYTHON* only the path of modules is kept.
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
    """What the records of one run have in common, and how to run.

    Attributes:
        workloads: ``"module:ATTRIBUTE"`` of the tuple.
        results: Folder that holds one folder per machine.
        scratch: Folder for caches and output while running.
        repeat: Command that repeats a case, up to its ``--workload`` and so on.
        force: Measure again what already has a record of the same making.
        cold: Compile again what the cache of an earlier run has.
        cache: Folder of compiled code that is kept from run to run; ``None`` keeps nothing.
        deadline_s: Wall seconds that one process of a case may take.
        memory_limit: Bytes; ``None`` means 90 % of the machine's.
        image: Digest of the image in whose container this is; ``None`` if it is in none.
    """

    project: str
    commit: str
    workloads: str
    cell: Cell
    machine: Machine
    results: str
    scratch: str
    repeat: str
    device: str = "cpu"
    threads: int = 1
    force: bool = False
    cold: bool = False
    cache: str | None = None
    deadline_s: float = DEADLINE_S
    memory_limit: int | None = None
    image: str | None = None

    @property
    def record_file(self) -> Path:
        """Where the records of this run go."""
        return record_file(Path(self.results), self.machine.name, self.commit, self.cell.id)


def run_cases(
    run: Run,
    cases: Sequence[Case],
    on_step: Callable[[Step, Case, RunRecord | None], None] = lambda *_: None,
) -> None:
    """Measure every case that has no record yet; a record is on disk before the next case starts.

    Args:
        run: What the cases have in common.
        cases: In the order in which to run them.
        on_step: Called with what happens to a case, and its record once it is there.

    Raises:
        OSError: If a record cannot be written (a full disk); what was written before stays.
    """
    newest = {} if run.force else newest_keys(run.record_file)
    Path(run.scratch).mkdir(parents=True, exist_ok=True)
    elsewhere = {} if run.force else records_of_other_commits(run)
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
        # Only now is the machine as it was found: what follows is load of our own.
        stability = observe(run.device)
        seed = make_seed(run, todo[0], lanes.first)
        lanes.begin()
        expected = expected_compile_s(run)
        for batch in batches(todo, lanes.n, begun=bool(newest)):
            for case in batch:
                on_step("started", case, None)
            # Compiling fills all cores; what is timed is then alone on the machine.
            dearest = sorted(batch, key=lambda c: -expected.get(case_key(run, c), 0.0))
            done = lanes.compile(dearest, seed)
            found = {case.name: one for case, one in zip(dearest, done, strict=True)}
            for case in batch:
                with found[case.name] as compiled:
                    record = measure_case(run, case, compiled, seed, lanes, stability)
                if record.failure is not None and compiled.key is not None:
                    # What was kept may be at fault, so this time nothing of it is used.
                    cache.drop(Path(run.cache or ""), compiled.key)
                    with compile_case(run, case, seed, lanes.first) as fresh:
                        record = measure_case(run, case, fresh, seed, lanes, stability)
                append_record(run.record_file, record)
                on_step("finished", case, record)


def is_starved(failure: Failure | None, kills: int) -> bool:
    """Say whether a process lacked memory that another one beside it may have had.

    One that met its own limit did not, and one that a person killed is not to be run again.

    Args:
        failure: Of the process.
        kills: What ``oom_kills`` was before it began.
    """
    if failure is None or not failure.exception:
        return False
    killed = failure.exception == "SIGKILL" and oom_kills() > kills
    return killed or failure.failure_class == "out_of_memory"


def oom_kills() -> int:
    """Return how many processes Linux has killed so far because memory ran out."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def batches(cases: Sequence[Case], n: int, *, begun: bool = False) -> Iterator[list[Case]]:
    """Yield cases to be compiled together: ``n`` at first, so that a verdict comes soon, then many.

    Many at once where the cell has ``begun`` in an earlier run, which had a verdict.
    In a large batch no core waits long for another one to be done. What is compiled stays in the
    cache, so whoever ends a run loses little.
    """
    left, size = list(cases), LARGEST_BATCH * n if begun else n
    while left:
        yield left[:size]
        left, size = left[size:], LARGEST_BATCH * n


def expected_compile_s(run: Run) -> dict[CaseKey, float]:
    """Return how long cases took to compile in this cell, on whatever machine.

    The longest one begins first, or a core would wait for it at the end.
    """
    seconds: dict[CaseKey, float] = {}
    for path in Path(run.results).glob(f"*/records/*-{run.cell.id}.jsonl"):
        for case, _, data in read_final(path):
            cold = (data.get("compile") or {}).get("cold_s")
            if type(cold) is float:
                seconds[case] = cold
    return seconds


def is_answered(run: Run, case: Case, newest: dict[CaseKey, RunKey]) -> bool:
    """Say whether the newest record of a case was made as this run would make it.

    Only the newest counts, since it is the one that every view shows.
    """
    return newest.get(case_key(run, case)) == run_key(run)


def case_key(run: Run, case: Case) -> CaseKey:
    """Return what a record of the case is about."""
    workload = case.workload
    return (workload.name, workload.version, case.size, case.variant.name, run.device)


def run_key(run: Run) -> RunKey:
    """Return how a record of this run is made."""
    cell = run.cell
    return (run.commit, cell.id, cell.lock_sha256, run.threads, str(INSTRUMENT), run.image)


def records_of_other_commits(run: Run) -> dict[CaseKey, dict[str, Any]]:
    """Return the newest final record of each case that differs from this run in its commit only.

    Those of environments that no lock describes are left out: their packages may have changed.
    """
    found: dict[CaseKey, dict[str, Any]] = {}
    if run.cell.lock_sha256 is None:
        return found
    wanted = run_key(run)[1:]
    for path in run.record_file.parent.glob(f"*-{run.cell.id}.jsonl"):
        for case, made, data in read_final(path):
            older = found.get(case)
            if made is None or made[1:] != wanted or not data.get("sources"):
                continue
            if older is None or data["recorded_at"] > older["recorded_at"]:
                found[case] = data
    return found


def same_subject(
    run: Run, case: Case, elsewhere: dict[CaseKey, dict[str, Any]]
) -> dict[str, Any] | None:
    """Return the record of another commit at which the case is the same, as one of this commit.

    It reaches the same sources there, so there is nothing to measure. When it was measured stays in
    it, so that nobody takes it for another run.
    """
    data = elsewhere.get(case_key(run, case))
    if data is None or data["sources"] != sources_of(case, run.workloads):
        return None
    return data | {
        "commit": run.commit,
        "same_as": data.get("same_as") or data["commit"],
        "command": repeat_command(run, case),
    }


def sources_of(case: Case, workloads: str) -> str | None:
    """Return the hash of what the case reaches; ``None`` where that cannot be found out here."""
    try:
        return reached_sources(case, workloads, ran=False)
    except Exception:  # noqa: BLE001  (somebody's sources: the process of the case says what is wrong)
        return None


def newest_keys(path: Path) -> dict[CaseKey, RunKey]:
    """Return how the newest record of each case was made, if it need not be made again.

    Lines that cannot be read are passed over: the case is measured again, and ``ivhl results`` names
    the line.
    """
    found: dict[CaseKey, RunKey] = {}
    for case, made, _ in read_final(path):
        found.pop(case, None)
        if made is not None:
            found[case] = made
    return found


def read_final(path: Path) -> Iterator[tuple[CaseKey, RunKey | None, dict[str, Any]]]:
    """Yield each record of a file: what it is about, how it was made, and the record.

    How it was made is ``None`` where measuring again might end in another way.
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
            )
            yield case, made if is_final(data["failure"]) else None, data


def is_final(failure: dict[str, Any] | None) -> bool:
    """Say whether measuring again would be expected to end the same way.

    A cell that could not be made, or a process that somebody killed, deserves another try, and so
    does one that we killed for its time or memory.
    """
    if failure is None:
        return True
    # The last two depend on limits that another run may set higher.
    passing = ("environment", "build", "unavailable", "timeout", "out_of_memory")
    return failure["failure_class"] not in passing and failure["exception"] != "SIGKILL"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seed:
    """What every case of a cell starts from, so that it does not pay for it again.

    Attributes:
        cache: Inductor's cache with nothing in it but precompiled headers and the throwaway.
        skip_isa_check: Whether Inductor is told that the vector instructions work.
    """

    cache: Path
    skip_isa_check: bool


class Launcher:
    """Starts the processes of cases: forked from one that has used the compiler, or new ones.

    Forked on the CPU only, since CUDA does not survive a fork.

    Args:
        run: What the cases have in common.
        folder: Where the nursery's output and caches go.
        seed: Inductor's cache with which the nursery starts; ``None`` means an empty one.
    """

    def __init__(self, run: Run, folder: Path, seed: Path | None = None) -> None:
        self._run = run
        self._folder = folder
        self._seed = seed
        self.may_fork = run.device == "cpu" and sys.platform == "linux"
        self._nursery: Nursery | None = None
        self._starting = threading.Lock()
        self._closed = False

    @property
    def cache(self) -> Path:
        """Inductor's cache of the nursery, from which those of the cases are copied."""
        return self._folder / "inductor"

    def launch(
        self, job: Job, *, environment: dict[str, str], output: Path, deadline_s: float
    ) -> Ending:
        """Run one process of a case, whose parent is filled in here, and return how it ended."""
        nursery = self.start()
        parent = nursery.pid if nursery else os.getpid()
        argument = json.dumps(asdict(replace(job, parent=parent)))
        limit = self._run.memory_limit or memory_limit()
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
            # Somebody killed it, or the kernel did, and its child with it. Trying again in the same
            # folder would find the caches filled.
            self.restart()
            return Ending(how="signal", code=signal.SIGKILL, seconds=0.0, peak_bytes=0)

    def start(self) -> Nursery | None:
        """Return the nursery, started if there is none yet; ``None`` where none can be."""
        with self._starting:
            if self._nursery is None and self.may_fork:
                self._start()
            return self._nursery

    def _start(self) -> None:
        # It is not to start Inductor's worker processes while it imports.
        environment = case_environment(self._run, self._folder) | {"TORCH_WARM_POOL": "0"}
        self._folder.mkdir(exist_ok=True)
        if self._seed is not None and not self.cache.exists():
            shutil.copytree(self._seed, self.cache)
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
        """End the nursery; the next case starts another."""
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

    def close(self) -> None:
        """End the nursery, also one that is only about to be there."""
        self._closed = True
        self.restart()


def make_seed(run: Run, case: Case, launcher: Launcher) -> Seed:
    """Compile a throwaway in an empty cache, once per cell: 10 to 20 s that are no case's own.

    What it leaves on disk is kept from run to run. The nursery does so by itself, and what is forked
    from it knows all that it has found out. Where there is none, Inductor up to 2.6 also starts two
    processes that import torch, 5 s in every process that compiles, to see whether the vector
    instructions work. It is told that they do, if then it picks the same ones as by itself. When all
    this fails, each case fails the same way, with a record of its own.
    """
    folder = launcher.cache.parent
    folder.mkdir()
    key = cache.key_of({"seed": "throwaway"} | what_compiles(run))
    kept = run.cache is not None and not run.cold and launcher.may_fork
    if kept and cache.fetch(Path(run.cache or ""), key, folder) is not None:
        launcher.cache.mkdir(exist_ok=True)  # where nothing compiles, nothing was kept
        return Seed(cache=launcher.cache, skip_isa_check=False)
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
    """A case that was compiled and judged, or failed at that; leaving it removes its folder.

    Attributes:
        folder: Its caches, journals and output.
        load: One-minute load average before.
        key: Entry of the compile cache that it comes from; ``None`` if it was compiled just now.
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
    """Starts the processes of cases: on all cores to compile, one by one to measure.

    Args:
        run: What the cases have in common.
        folder: Where output and caches go that belong to no case.
    """

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        # Two at least: processes that are forked from different ones have other memory layouts.
        self.n = max(2, os.cpu_count() or 1) if run.device == "cpu" else 1
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
        """The one with which a cell begins."""
        return self._launchers[0]

    def seeds(self, case: Case, process: int) -> dict[str, int]:
        """Return the seeds of one process, which no other process and no other run has."""
        draw = random.Random(f"{self._nonce} {case.name} {process}")  # noqa: S311  (no secret of ours)
        return {"seed": draw.getrandbits(62), "secret": draw.getrandbits(62)}

    def compile(self, cases: Sequence[Case], seed: Seed) -> list[Compiled]:
        """Compile cases side by side; in the order in which they were given."""
        before = oom_kills()
        done = list(self._pool.map(lambda case: self._compile(case, seed), cases))
        for number, case in enumerate(cases):
            if len(cases) > 1 and is_starved(done[number].failure, before):
                with done[number]:
                    done[number] = compile_case(self._run, case, seed, self.first)
        return done

    def begin(self) -> None:
        """Get all lanes ready, side by side; each compiles as soon as it is."""
        for launcher in self._launchers[: self.n]:
            self._pool.submit(self._begin, launcher)

    def _begin(self, launcher: Launcher) -> None:
        try:
            launcher.start()
        finally:
            self._free.put(launcher)

    def time(self, case: Case, folder: Path, stage: str, seed: Seed) -> list[Stage]:
        """Run the processes that time a case: ready side by side, timed one by one."""
        turns = folder / "turns"
        # Or one would start beside what is timed.
        for launcher in self._launchers[:PROCESSES]:
            launcher.start()

        def one(number: int, turns: Path | None) -> Stage:
            return run_stage(
                self._run, case, folder, stage, seed,
                self._launchers[number % len(self._launchers)],
                process=number, seeds=self.seeds(case, number), turns=turns,
            )  # fmt: skip

        before = oom_kills()
        if self.n > 1:
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
    """Compile one case in a process of its own, with a cache of its own, and judge what it computes.

    Args:
        run: What the cases have in common.
        case: What to compile.
        seed: What to start from; it is not changed.
        launcher: What starts the process.
    """
    began = time.monotonic()
    load = os.getloadavg()[0]
    folder = tempfile.TemporaryDirectory(prefix="case-", dir=run.scratch)
    here = Path(folder.name)
    key = None
    if run.cache is not None:
        key = cache.key_of(what_is_compiled(run, case))
        kept = None if run.cold else cache.fetch(Path(run.cache), key, here)
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
        }
        if why := cache.keep(Path(run.cache or ""), key, here, KEPT, found):
            note = {"text": f"ivhl: the compiled code was not kept: {why}", "count": 1}
            findings.setdefault("warnings", []).append(note)
    return Compiled(folder=folder, findings=findings, failure=failure, seconds=seconds, load=load)


def what_is_compiled(run: Run, case: Case) -> dict[str, Any]:
    """Return everything that decides what compiling a case gives, as JSON."""
    return {
        "case": case.name,
        "version": case.workload.version,
        "mode": case.mode,
        "sources": sources_of(case, run.workloads) or run.commit,
    } | what_compiles(run)


def what_compiles(run: Run) -> dict[str, Any]:
    """Return everything but the case that decides what compiling gives, as JSON."""
    return {
        "device": run.device,
        "threads": run.threads,
        "lock": run.cell.lock_sha256,
        "packages": installed_packages(),
        "python": sys.version,
        "processor": run.machine.cpu,
        "image": run.image,
        "instrument": INSTRUMENT,
    }


def measure_case(  # noqa: PLR0917  (what has no default is what it cannot do without)
    run: Run,
    case: Case,
    compiled: Compiled,
    seed: Seed,
    lanes: Lanes,
    stability: tuple[Observation, ...],
) -> RunRecord:
    """Time one case in processes of its own and return its record, measured or failed.

    Args:
        run: What the cases have in common.
        case: What to measure.
        compiled: What compiling it gave.
        seed: What the cell's cases start from.
        lanes: What starts the processes.
        stability: What was seen of the machine before the first case.
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
    """Return the failure of a variant that changed eager's times, if every process says so."""
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
    """Return the findings of all processes of a case as one.

    Samples follow one another, process by process; of the warm compiles the median counts, of the
    errors those of the process that came nearer to its limit.
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
    """Run one child and return what it found, why it failed if it did, and its seconds."""
    # Who waits for the others to be timed needs as much longer.
    deadline_s = run.deadline_s * (PROCESSES if turns else 1)
    name = f"{stage}-{process}"
    job = Job(
        workloads=run.workloads,
        workload=case.workload.name,
        size=case.size,
        variant=case.variant.name,
        device=run.device,
        threads=run.threads,
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
    # Of a process that is run again, what the first one found is not to be read as the second's.
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
    """Return the environment of a child: a clean one, with caches that belong to the case alone.

    The FX graph cache ignores the number of threads, and a cache that others filled would make a
    cold compile warm; both are reasons for a folder per case.
    """
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    threads = str(run.threads)
    return kept | {
        # Where this very code was imported from comes first: the child must be of one make with it.
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")))
        ),
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        "GLIBC_TUNABLES": ALLOCATOR,
        # For ivhl.compile of the commit under test: eager code must not be timed as compiled.
        "IVHL_MEASURING": "1",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "IVHL_PACKAGES": str(folder / "packages"),
        # Cases are compiled side by side; workers of Inductor's own would compete with them.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRITON_CACHE_DIR": str(folder / "triton"),
        # A neighbour's remote cache would make cold compiles warm as well.
        "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0",
    }


def read_journal(path: Path) -> tuple[Phase, dict[str, Any]]:
    """Return the last phase that the child entered and everything it found.

    A last line that was cut off when the child was killed is left out.
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
            message += " (from outside: a person, or the kernel when memory ran out)"
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
    stability: tuple[Observation, ...] | None = None,
    in_cell: bool = True,
) -> RunRecord:
    """Return the record of a case from what was found and why it ended.

    ``in_cell`` says whether this process is the cell's own, so that its packages are the cell's.
    """
    arms = {name: arm_of(data) for name in ARMS if (data := findings.get(name))}
    clock = findings.get("clock", choose_clock(run.device, run.threads))
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
            device=findings.get("device", run.device),
            threads=run.threads,
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
    )


def arm_of(data: dict[str, Any]) -> Arm:
    """Return an arm as the journal tells it."""
    return Arm(
        calls=data["calls"],
        samples_s=rounded(data["samples_s"]),
        wall_s=rounded(data["wall_s"]),
        cpu_s=rounded(data["cpu_s"]),
    )


def rounded(samples: list[float]) -> tuple[float, ...]:
    """Return the samples with five digits: more are noise, and most of what a record would hold."""
    return tuple(float(f"{sample:.5g}") for sample in samples)


def failed_everywhere(
    run: Run, case: Case, *, phase: Phase, failure_class: FailureClass, message: str, output: str
) -> RunRecord:
    """Return the record of a case that could not start, because its whole cell could not."""
    assert phase in get_args(Phase)  # noqa: S101  (a mistake of ours, not of a user)
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
    """Return what the journal says about compiling."""
    if data is None:
        return None
    reasons = {name: counted(data[name]) for name in ("graph_breaks", "recompiles")}
    return CompileFacts(**{"cold_s": None, "warm_s": None} | data | reasons)


def counted(items: list[dict[str, Any]]) -> tuple[Counted, ...]:
    """Return reasons or warnings of the journal."""
    return tuple(Counted(**item) for item in items)


def repeat_command(run: Run, case: Case) -> str:
    """Return the command that makes this record again."""
    words = [
        run.repeat,
        f"--workload {case.workload.name}",
        f"--size {case.size}",
        f"--variant {case.variant.name}",
    ]
    if case.mode is not None:
        words.append(f"--compile-mode {case.mode}")
    if run.threads != 1:
        words.append(f"--threads {run.threads}")
    if run.device != "cpu":
        words.append(f"--device {run.device}")
    if run.deadline_s != DEADLINE_S:
        words.append(f"--deadline {run.deadline_s:g}")
    if run.memory_limit is not None:
        words.append(f"--memory-limit {run.memory_limit / 2**30:g}")
    return " ".join([*words, "--force"])


def installed_packages() -> tuple[str, ...]:
    """Return every distribution of this interpreter as ``name==version``, sorted."""
    return tuple(
        sorted({f"{d.name.lower().replace('_', '-')}=={d.version}" for d in distributions()})
    )


def this_cell() -> Cell:
    """Return this very interpreter as a cell that no lock describes.

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


def this_machine(name: str) -> Machine:
    """Return what is to be known about this machine.

    Raises:
        SpecError: If the name cannot be that of a folder.
    """
    cpu = ""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise SpecError(
            f"machine name {name!r}: may hold letters, digits, '_', '-' and '.', and begins with "
            "none of the last two",
            hint="it becomes the name of a folder; give another one with --machine",
        )
    return Machine(
        name=name,
        cpu=cpu or os.uname().machine,
        n_cpus=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        system=f"{os.uname().sysname} {os.uname().machine}",
    )
