"""Worker pool: compile cases on all cores, and time one process at a time."""

from __future__ import annotations

import os
import queue
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ivhl.instrument import INSTRUMENT
from ivhl.machine.compiler import compiler_version
from ivhl.machine.gpu import free_bytes
from ivhl.machine.memory import memory_limit, oom_kills
from ivhl.measure import cache
from ivhl.measure.earlier import sources_of
from ivhl.measure.effort import PROCESSES
from ivhl.measure.launcher import Launcher, launcher_of, run_stage
from ivhl.measure.outcome import installed_packages
from ivhl.measure.shared import (
    LIMIT_BYTES,
    checks_in,
    keep_bytecode,
    lacks_bytecode,
    own_folder,
    take_bytecode,
)
from ivhl.measure.wheels import installed_wheels
from ivhl.workload import fits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ivhl.measure.launcher import Stage
    from ivhl.measure.run import Run
    from ivhl.records.record import Failure
    from ivhl.workload import Case

# Of the GPU's memory, what a process holds before its first tensor: context, kernels, workspaces.
CONTEXT_BYTES = 1 << 30
# Files and folders of a case that the compile cache keeps.
KEPT = ("inductor", "triton", "packages", "references.pt")


class Lanes:
    """Starts the processes of cases: on all cores to compile, one at a time to measure.

    Args:
        run: Settings of the run.
        folder: Folder for output and caches that belong to no case.
        n_cases: Number of cases, where no more processes than that are needed.
    """

    def __init__(self, run: Run, folder: Path, n_cases: int | None = None) -> None:
        self._run = run
        # At least two: processes forked from different nurseries have different memory layouts.
        self.n = max(2, os.cpu_count() or 1)
        self._gpu_bytes = 0
        if run.effort.device != "cpu":
            self._gpu_bytes = free_bytes()
            self.n = max(1, min(self.n, self._gpu_bytes // (2 * CONTEXT_BYTES)))
        self.n = min(self.n, n_cases or self.n)
        self._launchers = [launcher_of(run, folder / "lane-0")]
        self._launchers += [
            launcher_of(run, folder / f"lane-{number}", self._launchers[0].cache)
            for number in range(1, max(self.n, PROCESSES))
        ]
        self._free: queue.SimpleQueue[Launcher] = queue.SimpleQueue()
        self._idle: queue.SimpleQueue[Launcher] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(self.n)

    @property
    def first(self) -> Launcher:
        """The launcher that makes the seed."""
        return self._launchers[0]

    def compile(self, cases: Sequence[Case]) -> list[CompiledCase]:
        """Compile cases in parallel; return them in the given order."""
        done = {case.name: compiled for case, compiled in self.compile_each(cases)}
        return [done[case.name] for case in cases]

    def compile_each(self, cases: Sequence[Case]) -> Iterator[tuple[Case, CompiledCase]]:
        """Compile cases in parallel; yield each as it ends, those that must be alone at the end."""
        before = oom_kills()
        alone, small = [], {}
        for case in cases:
            if self.leaves_room(case) and not self.is_tuned(case):
                small[self._pool.submit(self._compile, case)] = case
            else:
                alone.append(case)
        for future in as_completed(small):
            compiled = future.result()
            if len(small) > 1 and is_starved(compiled.failure, before):
                with compiled:
                    alone.append(small[future])
            else:
                yield small[future], compiled
        for case in sorted(alone, key=cases.index):
            yield case, compile_case(self._run, case, self.first)

    def leaves_room(self, case: Case) -> bool:
        """Return whether memory has room for one such case per lane, by its declared cost."""
        if self._run.effort.device != "cpu":
            return fits(case, self._gpu_bytes / self.n - CONTEXT_BYTES)
        limit = self._run.effort.memory_limit or memory_limit()
        return fits(case, limit / self.n)

    def is_tuned(self, case: Case) -> bool:
        """Return whether compiling a case times kernels on the GPU, which must be alone for that."""
        return self._run.effort.device != "cpu" and case.variant.mode.startswith("max-autotune")

    def cases_in_turns(self, n_commits: int) -> int:
        """Return how many cases are timed together, whose processes take turns.

        A process on a GPU takes 5 s to begin with CUDA, to load compiled code and to judge it, and
        1 s to time. On the CPU a fork is ready at once, and each case has its record as soon as it
        can.
        """
        if self._run.effort.device == "cpu":
            return 1
        return max(1, self.n // (self._run.effort.processes * n_commits))

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

    def start(self) -> None:
        """Start what forks the processes that time, so that none starts while one is timed."""
        for launcher in self._launchers[:PROCESSES]:
            launcher.start()
        # A nursery takes one order at a time, and processes do not end in the order of their start.
        self._idle = queue.SimpleQueue()
        for launcher in self._launchers:
            self._idle.put(launcher)

    def run_one(self, timing: Timing, number: int, turns: Path | None, taking: int) -> Stage:
        """Run one of the processes that time a case."""
        launcher = self._idle.get()
        try:
            return run_stage(
                self._run, timing.case, timing.folder, timing.stage, launcher,
                process=number, turns=turns, taking=taking,
            )  # fmt: skip
        finally:
            self._idle.put(launcher)

    def _compile(self, case: Case) -> CompiledCase:
        launcher = self._free.get()
        try:
            return compile_case(self._run, case, launcher)
        finally:
            self._free.put(launcher)

    def close(self) -> None:
        """End all processes."""
        for launcher in self._launchers:
            launcher.close()
        self._pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Timing:
    """A case to time, as a stage of its processes."""

    lanes: Lanes
    case: Case
    folder: Path
    stage: str

    @property
    def leaves_room(self) -> bool:
        """Whether several of its processes may run at once."""
        return self.lanes.n > 1 and self.lanes.leaves_room(self.case)


def time_in_turns(timings: Sequence[Timing], processes: int) -> list[list[Stage]]:
    """Run the processes that time cases: prepared in parallel, timed one at a time.

    Those of several commits alternate, each commit first as often as the other: whatever slows the
    machine for longer than a process takes slows both. Where the processes run one after the other,
    a failure of one ends those of its commit.

    Args:
        timings: The case at one commit, or at several; on a GPU several cases.
        processes: Processes for each.

    Returns:
        The stages of each, in the order of their processes.
    """
    if not timings:
        return []
    for one in timings:
        one.lanes.start()
    commits = range(len(timings))
    order = [
        (commit, number)
        for number in range(processes)
        for commit in (commits if number % 2 == 0 else reversed(commits))
    ]

    def run(which: tuple[int, int], turns: Path | None = None) -> Stage:
        timing = timings[which[0]]
        return timing.lanes.run_one(timing, which[1], turns, len(order) if turns else 1)

    if all(one.leaves_room for one in timings):
        turns, before = timings[0].folder / "turns", oom_kills()
        with ThreadPoolExecutor(timings[0].lanes.n) as pool:
            done = dict(zip(order, pool.map(run, order, repeat(turns)), strict=True))
        if not any(is_starved(failure, before) for _, failure, _ in done.values()):
            return [[done[commit, n] for n in range(processes)] for commit in commits]
    stages: list[list[Stage]] = [[] for _ in timings]
    for commit, number in order:
        if all(failure is None for _, failure, _ in stages[commit]):
            stages[commit].append(run((commit, number)))
    return stages


@dataclass(kw_only=True, slots=True)
class CompiledCase:
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


def make_seed(run: Run, case: Case, lanes: Lanes) -> None:
    """Get all lanes ready: compile a throwaway, once per cell, which takes 10 to 20 s.

    On the CPU, what it leaves on disk is kept from run to run; each nursery compiles it by itself,
    and what is forked from it knows all that it has found out. Where there is none, and on a GPU, a
    process of its own compiles it, on a GPU for Triton's launcher above all. When all this fails,
    each case fails the same way, with a record of its own.

    A verdict on a single case does without: the one process imports what the case needs.
    """
    launcher = lanes.first
    folder = launcher.cache.parent
    folder.mkdir()
    on_cpu = run.effort.device == "cpu"
    if on_cpu and not run.effort.cold and take_throwaway(run, launcher):
        launcher.may_fork = run.effort.is_timed or lanes.n > 1
        lanes.begin()
        return
    new = lacks_bytecode()
    lanes.begin()
    lanes.wait()
    if on_cpu and keep_throwaway(run, launcher, new=new):
        return
    launcher.cache.mkdir(parents=True, exist_ok=True)
    run_stage(run, case, folder, "seed", launcher)


def take_throwaway(run: Run, launcher: Launcher) -> bool:
    """Take the throwaway from an earlier run; else what other projects of the user have of it.

    Of those, bytecode and Inductor's checks of vector instructions: each nursery compiles the
    throwaway of a new project by itself, or its cases would pay for what that imports.

    Returns:
        Whether nothing is left to compile for the first time.
    """
    shared = own_folder(run.shared)
    if shared is not None and lacks_bytecode():
        take_bytecode(shared)
    if run.cache is None or not launcher.may_fork:
        return False
    folder = launcher.cache.parent
    if cache.fetch(Path(run.cache), key_of_throwaway(run), folder) is not None:
        launcher.cache.mkdir(exist_ok=True)  # where nothing compiles, nothing was kept
        return True
    if shared is not None:
        cache.fetch(shared, _key_of_checks(run), folder)
    return False


def keep_throwaway(run: Run, launcher: Launcher, *, new: bool = False) -> bool:
    """Compile the throwaway if necessary, and keep it; return whether a nursery can run here.

    Args:
        run: Settings of the run.
        launcher: Compiles it.
        new: Whether no process had imported PyTorch here. What all projects share is kept before
            any case: a case that imports more pays for that in each new environment.
    """
    if launcher.start() is None:
        return False
    launcher.cache.mkdir(exist_ok=True)
    folder = launcher.cache.parent
    if run.cache is not None:
        cache.keep(Path(run.cache), key_of_throwaway(run), folder, ("inductor",), {})
    if new and (shared := own_folder(run.shared)) is not None:
        keep_bytecode(shared)
        names = tuple(path.relative_to(folder).as_posix() for path in checks_in(launcher.cache))
        cache.keep(shared, _key_of_checks(run), folder, names, {}, limit_bytes=LIMIT_BYTES)
    return True


def key_of_throwaway(run: Run) -> str:
    """Return the entry of the compile cache that keeps the throwaway of this cell."""
    about = what_compiles(run)
    # The throwaway does not import the project, whose version changes from commit to commit.
    project = f"{run.project.lower().replace('_', '-')}=="
    about["packages"] = [name for name in about["packages"] if not name.startswith(project)]
    return cache.key_of({"seed": "throwaway"} | about)


def _key_of_checks(run: Run) -> str:
    """Return the entry of the checks of vector instructions, for all projects with this build."""
    about = what_compiles(run)
    del about["lock"], about["packages"]
    about["wheels"] = [asdict(wheel) for wheel in installed_wheels()]
    return cache.key_of({"seed": "checks", "compiler": compiler_version()} | about)


def compile_case(run: Run, case: Case, launcher: Launcher) -> CompiledCase:
    """Compile one case in its own process with its own cache, and judge its outputs.

    Args:
        run: Settings of the run.
        case: Case to compile.
        launcher: Starts the process; its cache, which only has what every case needs, is copied.
    """
    began = time.monotonic()
    load = os.getloadavg()[0]
    # A process that the compiler left behind may still write there; the next run clears it away.
    folder = tempfile.TemporaryDirectory(
        prefix="case-", dir=run.scratch, ignore_cleanup_errors=True
    )
    here = Path(folder.name)
    key = None
    if run.cache is not None:
        key = cache.key_of(what_is_compiled(run, case))
        kept = None if run.effort.cold else cache.fetch(Path(run.cache), key, here)
        failure = None
        if kept is not None and not run.effort.is_timed:
            found, failure, _ = run_stage(run, case, here, "time", launcher)
            kept |= found
        elif kept is not None and "asked_at" in kept:
            # A verdict has compiled it and shows no seconds: this record is the first that does.
            later = {"compile": kept["compile"] | {"cold_at": kept.pop("asked_at")}}
            cache.keep(Path(run.cache), key, here, KEPT, kept | later)
        if kept is not None and failure is None:
            seconds = time.monotonic() - began
            return CompiledCase(
                folder=folder, findings=kept, failure=None, seconds=seconds, load=load, key=key
            )
        if failure is not None:  # perhaps the cached code is the cause
            cache.drop(Path(run.cache), key)
            folder.cleanup()
            return compile_case(run, case, launcher)
    shutil.copytree(launcher.cache, here / "inductor")
    if (triton := launcher.cache.with_name("triton")).is_dir():  # of the throwaway on a GPU
        shutil.copytree(triton, here / "triton")
    findings, failure, seconds = run_stage(run, case, here, "compile", launcher)
    # What was compiled in a process of its own paid for more than it would have in a fork.
    if failure is None and key is not None and (run.effort.is_timed or launcher.may_fork):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        facts = findings.get("compile", {}).items()
        found = {
            "compile": {k: v for k, v in facts if k.startswith("cold")},
            "sources": findings.get("sources"),
            "benchmark": findings.get("benchmark"),
        }
        if run.effort.is_timed:
            found["compile"]["cold_at"] = now
        else:
            found["asked_at"] = now
        if why := cache.keep(Path(run.cache or ""), key, here, KEPT, found):
            note = {"text": f"ivhl: the compiled code was not kept: {why}", "count": 1}
            findings.setdefault("warnings", []).append(note)
    return CompiledCase(
        folder=folder, findings=findings, failure=failure, seconds=seconds, load=load
    )


def what_is_compiled(run: Run, case: Case) -> dict[str, Any]:
    """Return, as JSON, everything that determines the result of compiling a case."""
    return {
        "case": case.name,
        "version": case.workload.version,
        "mode": case.mode,
        # This process finds the sources of one commit only.
        "sources": (None if run.project_path else sources_of(run, case)) or run.commit,
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
