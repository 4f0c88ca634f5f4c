"""The main job: cells of one Python, through asv, into records, a table and a site."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from asv.machine import MachineCollection

from ivhl.asv_plugins.machine import asv_machine, known_machine, machine_differences
from ivhl.bench.progress import Display
from ivhl.bench.work import choose_cases, list_work, records_at, take_shard
from ivhl.errors import IvhlError, ResultsError, SpecError, UnknownNameError
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import ensure_lock, lock_state
from ivhl.matrix.project import MATRIX, load_project
from ivhl.matrix.spec import load_matrix
from ivhl.measure.process import memory_limit
from ivhl.measure.runner import DEADLINE_S, failed_everywhere, this_machine
from ivhl.measure.settings import VARIABLE, Settings, write_settings
from ivhl.pages.publish import set_aside_unreadable
from ivhl.records import Cell, append_record
from ivhl.workload import check_memory, fits, load_workloads, needs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from ivhl.bench.work import Shard, Suite
    from ivhl.matrix.locks import LockState
    from ivhl.matrix.project import Project
    from ivhl.matrix.spec import CellSpec, Matrix, Tier
    from ivhl.records import Machine
    from ivhl.workload import Case

# Enough for the records of a run; asked for before measuring, because afterwards it is too late.
ROOM_BYTES = 8 * 2**20
# Cases with which all cells begin, where there are more than that in a cell.
FIRST_LOOK = 2
WORTH_A_LOOK = 8
# A parameter of asv's graphs, so that what a card does is not taken for what the processor did.
DEVICE_VARIABLE = "IVHL_DEVICE"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the person asked for.

    Attributes:
        python: One Python of the matrix.
        releases: PyTorch releases; empty means those of the tier.
        workloads: Names of workloads; empty means all. So are ``variants``.
        commit: What to measure; anything that git resolves to a commit.
        machine: Name of this machine in the results; ``None`` means its host name.
        results: Folder of the results.
        suite: See ``choose_cases``.
        cold: Compile again what the cache of an earlier run has.
        shard: Which share of all Pythons' work to do; ``None`` means all of this Python's.
    """

    root: Path
    python: str
    releases: tuple[str, ...] = ()
    tier: Tier = "default"
    workloads: tuple[str, ...] = ()
    size: str | None = None
    variants: tuple[str, ...] = ()
    commit: str = "HEAD"
    machine: str | None = None
    results: Path | None = None
    device: str = "cpu"
    threads: int = 1
    suite: Suite | None = None
    force: bool = False
    cold: bool = False
    deadline_s: float = DEADLINE_S
    memory_limit: int | None = None
    shard: Shard | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What a run left behind.

    Attributes:
        machine: Name under which the records are kept.
        cells: Cells asked for, unavailable ones included.
        cases: Names of the cases asked for, in any of the cells.
        missing: Cases without a record of this run, as ``cell: case``.
        log: What asv said.
    """

    commit: str
    machine: str
    cells: tuple[CellSpec, ...]
    cases: tuple[str, ...]
    missing: tuple[str, ...]
    log: Path
    seconds: float


class Place(Protocol):
    """Where cells are made and measured: this machine itself, or an engine of containers."""

    def machine(self, request: Request) -> Machine:
        """Return the machine that the results are of."""

    def check(self, settings: Settings, python: str) -> Settings:
        """Refuse what cannot work there; return the settings with what only the place knows."""

    def measure(
        self,
        settings: Settings,
        locks: Sequence[LockState],
        cases: Sequence[Case],
        *,
        commit: str,
        console: Console,
    ) -> tuple[str, ...]:
        """Measure the cases in the cells; return what has no record, as ``cell: case``."""


class Here:
    """This machine itself, through asv."""

    def machine(self, request: Request) -> Machine:
        """Return this machine.

        Raises:
            SpecError: If its name cannot be that of a folder.
        """
        return this_machine(request.machine or os.uname().nodename)

    def check(self, settings: Settings, python: str) -> Settings:
        """Return the settings with the interpreter of the Python.

        Raises:
            InterpreterError: If it is not on this machine.
            SpecError: If the device is not there.
        """
        interpreter = find_interpreter(Path(settings.root), python)
        check_device(settings.device)
        save_machine(settings)
        return replace(settings, interpreters={python: str(interpreter.path)})

    def measure(
        self,
        settings: Settings,
        locks: Sequence[LockState],
        cases: Sequence[Case],
        *,
        commit: str,
        console: Console,
    ) -> tuple[str, ...]:
        """See ``run_asv``."""
        return run_asv(settings, locks, cases, commit=commit, console=console)


def bench(request: Request, console: Console, place: Place | None = None) -> Done:
    """Measure the cells of one Python at one commit.

    Args:
        request: What to measure.
        console: Where it is told.
        place: Where to measure; ``None`` means this machine itself.

    Raises:
        SpecError: If a name is unknown, a file is not valid, this is no git repository, or the
            results of this machine's name are another machine's.
        LockError: If a lock is missing and cannot be made.
        InterpreterError: If the Python is not on this machine.
        ResultsError: If the results cannot be written; what was written before stays.
    """
    began = time.monotonic()
    place = place or Here()
    root = request.root
    project = load_project(root)
    matrix = load_matrix(root / MATRIX)
    if request.python not in matrix.pythons:
        raise UnknownNameError("Python", request.python, matrix.pythons)
    results = (request.results or root / "results").resolve()
    settings = make_settings(request, project, results, place.machine(request))
    cases = choose_cases(
        load_workloads(project.workloads),
        names=request.workloads,
        size=request.size,
        variants=request.variants,
        device=request.device,
        suite=request.suite,
    )
    commit = resolve_commit(root, request.commit, console)
    share = cases_of_cells(request, matrix, cases, commit)
    cases = tuple(case for case in cases if any(case in mine for mine in share.values()))
    if request.device == "cpu":
        cases = those_that_fit(request, cases, console)
        share = {cell: tuple(c for c in mine if c in cases) for cell, mine in share.items()}
    check_room(results)
    check_machine(settings)
    locks = [lock_of(root, matrix, spec, console) for spec in share]
    settings = place.check(settings, request.python)
    with only_run_here(root):
        shutil.rmtree(settings.scratch, ignore_errors=True)  # of runs that were killed
        for problem in set_aside_unreadable(results):
            console.print(f"warning: set aside: {problem}", markup=False, soft_wrap=True)
        # asv measures the same cases in all cells that it is given.
        by_name = {case.name: case for case in cases}
        for lock in locks:
            if lock.kind != "locked":
                record_unavailable(settings, lock, share[lock.cell], commit)
        alike = parts_in_order(
            [(lock, share[lock.cell]) for lock in locks if lock.kind == "locked"]
        )
        missing: tuple[str, ...] = ()
        log = root / ".asv" / "asv.log"
        log.unlink(missing_ok=True)
        for names, locked in alike.items():
            wanted = replace(settings, names=names)
            part = tuple(by_name[name] for name in names)
            missing += place.measure(wanted, locked, part, commit=commit, console=console)
    return Done(
        commit=commit,
        machine=settings.machine.name,
        cells=tuple(lock.cell for lock in locks),
        cases=tuple(case.name for case in cases),
        missing=missing,
        log=log,
        seconds=time.monotonic() - began,
    )


def those_that_fit(
    request: Request, cases: tuple[Case, ...], console: Console
) -> tuple[Case, ...]:
    """Return the cases that fit into memory; of a whole suite, the others are left out and named.

    Raises:
        SpecError: If one that was asked for by name needs more.
    """
    limit = request.memory_limit or memory_limit()
    if request.workloads or request.size:
        check_memory(cases, limit)
    if too_large := [case for case in cases if not fits(case, limit)]:
        console.print(
            f"left out for lack of memory: {needs_of(too_large, limit)}",
            markup=False,
            soft_wrap=True,
        )
    return tuple(case for case in cases if fits(case, limit))


def parts_in_order(
    locked: Sequence[tuple[LockState, tuple[Case, ...]]],
) -> dict[tuple[str, ...], list[LockState]]:
    """Return in which order to go through the cells, with the cases and the cells of each part.

    All cells begin with a few cases, so that each has a verdict before any is measured through,
    which takes minutes. The last one is then measured through at once, and the others after it.
    """
    first: dict[tuple[str, ...], list[LockState]] = {}
    rest: dict[tuple[str, ...], list[LockState]] = {}
    for number, (lock, cases) in enumerate(locked, 1):
        names = tuple(case.name for case in cases)
        if len(names) > WORTH_A_LOOK and number < len(locked):
            first.setdefault(names[:FIRST_LOOK], []).append(lock)
            rest.setdefault(names[FIRST_LOOK:], []).append(lock)
        elif names:
            first.setdefault(names, []).append(lock)
    for names, cells in rest.items():
        first.setdefault(names, []).extend(cells)
    return first


def cases_of_cells(
    request: Request, matrix: Matrix, cases: tuple[Case, ...], commit: str
) -> dict[CellSpec, tuple[Case, ...]]:
    """Return what to measure in each cell of the Python that was asked for.

    A share is one of the work of all Pythons, so that the shares of all sessions of a machine
    together are as long as those of the other machines.

    Raises:
        UnknownNameError: If there is no such release.
        SpecError: If git does not know the commit.
    """
    cells = matrix.cells(releases=request.releases, tier=request.tier)
    if request.shard is None:
        return {cell: cases for cell in cells if cell.python == request.python}
    work = list_work(
        cells,
        cases,
        records_at(request.root, commit),
        device=request.device,
    )
    mine: dict[CellSpec, set[str]] = {}
    for one in take_shard(work, request.shard):
        if one.cell.python == request.python:
            mine.setdefault(one.cell, set()).update(case.name for case in one.cases)
    # In the order of all of it, in which the first case of each workload may come before any second.
    return {
        cell: tuple(case for case in cases if case.name in names) for cell, names in mine.items()
    }


def lock_of(root: Path, matrix: Matrix, cell: CellSpec, console: Console) -> LockState:
    """Return the lock of a cell, and say so when it had to be made for this run.

    Raises:
        LockError: See ``ensure_lock``.
        UnknownNameError: If there is no such release.
    """
    there = lock_state(root, cell).kind != "missing"
    lock = ensure_lock(root, matrix, cell)
    if not there:
        console.print(
            f"note: {cell.id} had no lock; made {lock.path.relative_to(root)}: commit it, or its "
            "records cannot be repeated",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    return lock


def resolve_commit(root: Path, name: str, console: Console) -> str:
    """Return the full hash of a commit, and say so when the working tree differs from it.

    Raises:
        SpecError: If this is no git repository, or has no such commit.
    """
    done = git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if done.returncode:
        raise SpecError(
            f"git knows no commit {name!r} in {root}: {done.stderr.strip()}".rstrip(": "),
            hint="asv measures commits: run this in a git clone, and commit what is to be measured",
        )
    commit = done.stdout.strip()
    # Runs change the results themselves, and nothing measured depends on them.
    code = ["--", ".", ":(exclude)results"]
    status = git(root, "status", "--porcelain", "--untracked-files=no", *code)
    changed = status.stdout.splitlines()
    if name == "HEAD" and changed:
        console.print(
            f"[yellow]note:[/] {len(changed)} changed file(s) not committed: the project under test "
            f"is commit {commit[:8]}, without them; the matrix, the locks, benchmarks/ and the "
            "measuring code are the working tree's",
            soft_wrap=True,
        )
    return commit


def git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in the project and return what it said."""
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )


def check_device(device: str) -> None:
    """Refuse a device that is not there: its failures would be taken for PyTorch's.

    Raises:
        SpecError: If there is no driver for it.
    """
    if device == "cuda" and not has_nvidia_driver():
        raise SpecError(
            "--device cuda: this machine has no NVIDIA driver",
            hint="leave --device away to measure on the CPU",
        )


def has_nvidia_driver() -> bool:
    """Say whether this machine has a driver for NVIDIA cards."""
    return Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None


def check_room(results: Path) -> None:
    """Make the results folder.

    Raises:
        ResultsError: If it cannot be written, or the disk has no room for records.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(results).free
    except OSError as error:
        raise ResultsError(
            f"the results folder cannot be made: {error}", hint="name another one with --results"
        ) from error
    if not os.access(results, os.W_OK):
        raise ResultsError(
            f"{results} cannot be written", hint="name another folder with --results"
        )
    if free < ROOM_BYTES:
        raise ResultsError(
            f"{results} has {free / 2**20:.1f} MiB free, and a run needs {ROOM_BYTES >> 20} MiB",
            hint="make room, or name another folder with --results; nothing was measured yet",
        )


def make_settings(
    request: Request, project: Project, results: Path, machine: Machine | None = None
) -> Settings:
    """Return the settings that every cell of this run reads; the machine is this one if none is."""
    home = request.root / ".asv"
    return Settings(
        root=str(request.root),
        project=project.name,
        workloads=project.workloads,
        machine=machine or this_machine(request.machine or os.uname().nodename),
        results=str(results),
        scratch=str(home / "scratch"),
        events=str(home / "events.jsonl"),
        interpreters={},
        device=request.device,
        threads=request.threads,
        force=request.force,
        cold=request.cold,
        deadline_s=request.deadline_s,
        memory_limit=request.memory_limit,
    )


@contextmanager
def only_run_here(root: Path) -> Iterator[None]:
    """Hold the lock of this checkout: two runs side by side would measure each other.

    asv inherits the open file, so the lock also holds when this process is killed and asv is not.

    Raises:
        ResultsError: If another run holds it.
    """
    path = root / ".asv" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        os.set_inheritable(file.fileno(), True)  # noqa: FBT003  (it has no other form)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ResultsError(
                f"another run is measuring in {root} (process {file.read().strip()})",
                hint="wait for it, or end it",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def check_machine(settings: Settings) -> None:
    """Refuse a name whose results are another machine's: they would be taken for changes.

    It happens where machines come and go under one host name, or one name is in a script.

    Raises:
        SpecError: If the results of that name are from another processor or system.
    """
    known = known_machine(Path(settings.results), settings.machine.name)
    different = machine_differences(known, settings.machine)
    if different:
        folder = Path(settings.results) / settings.machine.name
        raise SpecError(
            f"machine {settings.machine.name!r} of {folder} is another machine: "
            + "; ".join(different),
            hint="give this one a name of its own with --machine NAME",
        )


def save_machine(settings: Settings) -> None:
    """Tell asv about this machine, so that it does not ask."""
    MachineCollection.save(settings.machine.name, asv_machine(settings.machine))


def record_unavailable(
    settings: Settings, lock: LockState, cases: Sequence[Case], commit: str
) -> None:
    """Record that there is nothing to install for this cell."""
    spec = lock.cell
    cell = Cell(id=spec.id, python=spec.python, torch=spec.torch, lock_sha256=lock.sha256)
    run = settings.run_in(cell, commit)
    for case in cases:
        record = failed_everywhere(
            run,
            case,
            phase="environment",
            failure_class="unavailable",
            message=lock.message,
            output="",
        )
        write(run.record_file, record)


def write(path: Path, record: Any) -> None:  # noqa: ANN401  (RunRecord)
    """Append a record.

    Raises:
        ResultsError: If it cannot be written.
    """
    try:
        append_record(path, record)
    except OSError as error:
        raise ResultsError(
            f"a record cannot be written to {path}: {error}",
            hint="make room and run the same command again: it goes on where it stopped",
        ) from error


def run_asv(
    settings: Settings,
    locks: Sequence[LockState],
    cases: Sequence[Case],
    *,
    commit: str,
    console: Console,
) -> tuple[str, ...]:
    """Run asv over the cells while showing what happens; return what it did not get to.

    Raises:
        ResultsError: If the results could not be written.
        IvhlError: If asv ended without measuring.
    """
    root = Path(settings.root)
    home = root / ".asv"
    log, events = home / "asv.log", Path(settings.events)
    events.write_text("", encoding="utf-8")
    configuration = write_configuration(root, settings, locks)
    write_settings(home / "settings.json", settings)
    environment = os.environ | {VARIABLE: str(home / "settings.json"), "NO_COLOR": "1"}
    command = [
        sys.executable, "-m", "asv", "run", "--config", str(configuration),
        "--machine", settings.machine.name, "--bench", benchmark_regex(cases), f"{commit}^!",
    ]  # fmt: skip
    with log.open("ab") as sink:
        process = subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            close_fds=False,  # it holds our lock, see only_run_here
        )
        # A supervisor ends a job with SIGTERM; it must not leave asv behind, measuring on.
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            with Display(console, events, [lock.cell.id for lock in locks], cases) as display:
                while process.poll() is None:
                    display.update()
                    time.sleep(0.2)
                display.update()
        except BaseException:
            end_session(process)
            raise
        finally:
            signal.signal(signal.SIGTERM, before)
    if process.returncode < 0:
        end_session(process)  # what it started goes on without it
        raise ResultsError(
            f"asv was ended by signal {-process.returncode}; what was measured is kept",
            hint="run the same command again: it goes on where it stopped",
        )
    if display.cannot_write:
        raise ResultsError(
            f"a record cannot be written: {display.cannot_write}",
            hint="make room and run the same command again: it goes on where it stopped",
        )
    # 2 means that a benchmark failed, which is a result.
    if process.returncode not in (0, 2) and not display.measured_something:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise IvhlError(
            "asv ended without measuring: " + " | ".join(x.strip() for x in lines[-3:]),
            hint=f"its whole output is in {log}",
        )
    return display.left()


def benchmark_regex(cases: Sequence[Case]) -> str:
    """Return what selects just these cases: asv starts a process for every value that it reads."""
    names = "|".join(re.escape(case.name) for case in cases)
    return rf"\('(?:{names})'\)$"


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End asv as Ctrl-C would, then everything that it started.

    asv gives its own children process groups of their own and leaves some behind when it is
    interrupted; they all share the session that was begun for it. Cases have sessions of their own
    and die with their parents.
    """
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(5)
    # SIGTERM first: it lets a case end with its compile workers and its folder.
    for how in (signal.SIGTERM, signal.SIGKILL):
        left = session_of(process.pid)
        for one in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, how)
        if left and how == signal.SIGTERM:
            time.sleep(1)
    process.wait()


def session_of(leader: int) -> list[int]:
    """Return every process of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(int(entry.name)) == leader:
                found.append(int(entry.name))
    return found


def write_configuration(root: Path, settings: Settings, locks: Sequence[LockState]) -> Path:
    """Write asv's configuration for exactly these cells, from ``asv.conf.json``.

    asv changes into the folder of its configuration, so every path in it is made absolute.

    Raises:
        SpecError: If ``asv.conf.json`` is missing or not JSON.
    """
    source = root / "asv.conf.json"
    try:
        conf = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"asv.conf.json: {error}", hint=f"correct {source}") from error
    conf |= {
        "ivhl_root": str(root),
        "repo": str(root),
        "benchmark_dir": str(root / conf["benchmark_dir"]),
        "env_dir": str(root / conf["env_dir"]),
        "html_dir": str(root / conf["html_dir"]),
        "results_dir": settings.results,
        "pythons": [],
        "matrix": {},
        "include": [
            {"python": lock.cell.python, "req": {"torch": lock.cell.torch}} for lock in locks
        ],
    }
    if settings.device != "cpu":
        for cell in conf["include"]:
            cell["env_nobuild"] = {DEVICE_VARIABLE: settings.device}
    path = root / ".asv" / "asv.conf.json"
    path.write_text(json.dumps(conf, indent=1), encoding="utf-8")
    return path
