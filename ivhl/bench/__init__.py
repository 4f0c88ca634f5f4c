"""Measure the cells of one Python through asv and write their records (``ivhl bench``)."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ivhl.asv.machine import known_machine, machine_differences, save_machine
from ivhl.asv.publish import set_aside_unreadable
from ivhl.asv.run import log_of, run_asv
from ivhl.bench.progress import Display
from ivhl.bench.work import choose_cases, list_work, records_at, take_shard
from ivhl.errors import IvhlError, ResultsError, SpecError, UnknownNameError
from ivhl.git import changed_files, find_commit
from ivhl.machine.gpu import has_nvidia_driver
from ivhl.machine.identity import this_machine
from ivhl.machine.memory import memory_limit
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import ensure_lock, lock_state
from ivhl.matrix.project import MATRIX, load_project
from ivhl.matrix.spec import load_matrix
from ivhl.measure.runner import DEADLINE_S, failed_everywhere
from ivhl.measure.settings import Settings
from ivhl.records import Cell, append_record
from ivhl.workload import broken_benchmarks, check_memory, fits, load_workloads, needs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from ivhl.bench.work import Shard, Suite
    from ivhl.matrix.locks import LockState
    from ivhl.matrix.project import Project
    from ivhl.matrix.spec import CellSpec, Matrix, Tier
    from ivhl.records import Machine
    from ivhl.workload import Case

# Disk space that the records of a run need. Checked before measuring: a full disk loses results.
ROOM_BYTES = 8 * 2**20
# Cells with more than WORTH_A_LOOK cases first run FIRST_LOOK of them; see ``parts_in_order``.
FIRST_LOOK = 2
WORTH_A_LOOK = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The options of ``ivhl bench``.

    Attributes:
        python: A Python of the matrix.
        releases: PyTorch releases; empty means those of the tier.
        workloads: Names of workloads; empty means all. The same holds for ``variants``.
        commit: Commit to measure, in any form that git resolves.
        machine: Name of this machine in the results; ``None`` means its host name.
        results: Folder of the results; ``None`` means ``results`` in the root.
        suite: See ``choose_cases``.
        cold: Ignore the compile cache of earlier runs.
        shard: Share of all Pythons' work to do; ``None`` means all work of this Python.
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
    """The outcome of a run.

    Attributes:
        machine: Name of the machine in the records.
        cells: Requested cells, unavailable ones included.
        cases: Names of the requested cases, in any of the cells.
        missing: Cases without a record of this run, as ``cell: case``.
        log: File with asv's output.
    """

    commit: str
    machine: str
    cells: tuple[CellSpec, ...]
    cases: tuple[str, ...]
    missing: tuple[str, ...]
    log: Path
    seconds: float


class Place(Protocol):
    """Where cells are installed and measured: on this machine itself, or in containers."""

    def machine(self, request: Request) -> Machine:
        """Return the machine that the records describe."""

    def check(self, settings: Settings, python: str) -> Settings:
        """Raise if the settings cannot work in this place; return them completed for it."""

    def measure(
        self,
        settings: Settings,
        locks: Sequence[LockState],
        cases: Sequence[Case],
        *,
        commit: str,
        console: Console,
    ) -> tuple[str, ...]:
        """Measure the cases in the cells; return those without a record, as ``cell: case``."""


class Here:
    """This machine itself, through asv."""

    def machine(self, request: Request) -> Machine:
        """Return this machine.

        Raises:
            SpecError: If its name cannot be a folder name.
        """
        return this_machine(request.machine or os.uname().nodename)

    def check(self, settings: Settings, python: str) -> Settings:
        """Return the settings with the interpreter of the Python.

        Raises:
            InterpreterError: If this machine lacks the interpreter.
            SpecError: If this machine lacks the device.
        """
        interpreter = find_interpreter(Path(settings.root), python)
        check_device(settings.device)
        save_machine(settings.machine)
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
        """See ``run_here``."""
        return run_here(settings, locks, cases, commit=commit, console=console)


def bench(request: Request, console: Console, place: Place | None = None) -> Done:
    """Measure the cells of one Python at one commit.

    Args:
        request: What to measure.
        console: Where progress and warnings are printed.
        place: Where to measure; ``None`` means this machine itself.

    Raises:
        SpecError: If a name is unknown, a file is invalid, the root is not a git repository, or
            the results under this machine's name come from another machine.
        LockError: If a lock is missing and cannot be resolved.
        InterpreterError: If this machine lacks the Python.
        ResultsError: If the results cannot be written; records written before stay.
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
    for broken in broken_benchmarks(project.workloads):
        console.print(f"warning: left out: {broken}", markup=False, soft_wrap=True)
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
        shutil.rmtree(settings.scratch, ignore_errors=True)  # left by killed runs
        for problem in set_aside_unreadable(results):
            console.print(f"warning: set aside: {problem}", markup=False, soft_wrap=True)
        # One asv run measures the same cases in all its cells: group cells with equal cases.
        by_name = {case.name: case for case in cases}
        for lock in locks:
            if lock.kind != "locked":
                record_unavailable(settings, lock, share[lock.cell], commit)
        alike = parts_in_order(
            [(lock, share[lock.cell]) for lock in locks if lock.kind == "locked"]
        )
        missing: tuple[str, ...] = ()
        log = log_of(root)
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
    """Return the cases that fit into memory; print a note that names the others.

    Raises:
        SpecError: If a case that was requested by name does not fit.
    """
    limit = request.memory_limit or memory_limit()
    if request.workloads or request.size:
        check_memory(cases, limit)
    if too_large := [case for case in cases if not fits(case, limit)]:
        console.print(
            f"left out, not enough memory: {needs_of(too_large, limit)}",
            markup=False,
            soft_wrap=True,
        )
    return tuple(case for case in cases if fits(case, limit))


def parts_in_order(
    locked: Sequence[tuple[LockState, tuple[Case, ...]]],
) -> dict[tuple[str, ...], list[LockState]]:
    """Return the parts of the run in order: case names to the cells that measure them.

    Large cells first run a few cases each, so that every cell has a first result before a full
    cell, which takes minutes. The last cell runs all its cases at once, then the others continue.
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
    """Return the cases to measure in each cell of the requested Python.

    A share is taken from the work of all Pythons. A machine runs one session per Python; only all
    its sessions together take as long as those of the other machines.

    Raises:
        UnknownNameError: If the matrix lacks a release.
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
    # Keep the order of ``cases``: it may put the first case of every workload before any second.
    return {
        cell: tuple(case for case in cases if case.name in names) for cell, names in mine.items()
    }


def lock_of(root: Path, matrix: Matrix, cell: CellSpec, console: Console) -> LockState:
    """Return the lock of a cell; resolve it, and print a note, if it is missing.

    Raises:
        LockError: See ``ensure_lock``.
        UnknownNameError: If the matrix lacks the release.
    """
    exists = lock_state(root, cell).kind != "missing"
    lock = ensure_lock(root, matrix, cell)
    if not exists:
        console.print(
            f"note: {cell.id} had no lock; wrote {lock.path.relative_to(root)}: commit it, or its "
            "records cannot be repeated",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    return lock


def resolve_commit(root: Path, name: str, console: Console) -> str:
    """Return the full hash of a commit; print a note if the working tree differs from HEAD.

    Raises:
        SpecError: If the root is not a git repository, or lacks the commit.
    """
    commit = find_commit(root, name)
    changed = changed_files(root)
    if name == "HEAD" and changed:
        console.print(
            f"[yellow]note:[/] {len(changed)} changed file(s) not committed. The project under test "
            f"is commit {commit[:8]}, without these changes. The matrix, the locks, benchmarks/ and "
            "the measuring code come from the working tree",
            soft_wrap=True,
        )
    return commit


def check_device(device: str) -> None:
    """Raise if the device has no driver: its failures would look like PyTorch's.

    Raises:
        SpecError: If the device is ``cuda`` and no NVIDIA driver is installed.
    """
    if device == "cuda" and not has_nvidia_driver():
        raise SpecError(
            "--device cuda: this machine has no NVIDIA driver",
            hint="leave out --device to measure on the CPU",
        )


def check_room(results: Path) -> None:
    """Create the results folder.

    Raises:
        ResultsError: If it cannot be written, or its disk has less than ``ROOM_BYTES`` free.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(results).free
    except OSError as error:
        raise ResultsError(
            f"cannot create the results folder: {error}", hint="choose another one with --results"
        ) from error
    if not os.access(results, os.W_OK):
        raise ResultsError(f"{results}: not writable", hint="choose another folder with --results")
    if free < ROOM_BYTES:
        raise ResultsError(
            f"{results} has {free / 2**20:.1f} MiB free; a run needs {ROOM_BYTES >> 20} MiB",
            hint="free space, or choose another folder with --results; nothing was measured yet",
        )


def make_settings(
    request: Request, project: Project, results: Path, machine: Machine | None = None
) -> Settings:
    """Return the settings that every cell of this run reads; ``None`` means this machine."""
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
    """Hold the lock of this checkout: two concurrent runs would disturb each other's timings.

    asv inherits the open file, so the lock holds while asv runs, even if this process is killed.

    Raises:
        ResultsError: If another run holds the lock.
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
                hint="wait for it to end, or stop it",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def check_machine(settings: Settings) -> None:
    """Raise if another machine has results under this name: differences would look like changes.

    This happens when machines are replaced under one host name, or a script fixes the name.

    Raises:
        SpecError: If the results under that name come from another processor or system.
    """
    known = known_machine(Path(settings.results), settings.machine.name)
    different = machine_differences(known, settings.machine)
    if different:
        folder = Path(settings.results) / settings.machine.name
        raise SpecError(
            f"{folder} has results of another machine named {settings.machine.name!r}: "
            + "; ".join(different),
            hint="give this machine its own name with --machine NAME",
        )


def record_unavailable(
    settings: Settings, lock: LockState, cases: Sequence[Case], commit: str
) -> None:
    """Record for each case that this cell's PyTorch has no distribution for its Python."""
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
            f"cannot write a record to {path}: {error}",
            hint="free disk space, then run the same command again: it continues where it stopped",
        ) from error


def run_here(
    settings: Settings,
    locks: Sequence[LockState],
    cases: Sequence[Case],
    *,
    commit: str,
    console: Console,
) -> tuple[str, ...]:
    """Run asv over the cells and show the progress; return the cases that were not measured.

    Raises:
        SpecError: If ``asv.conf.json`` is invalid.
        ResultsError: If the results could not be written, or a signal ended asv.
        IvhlError: If asv ended without measuring.
    """
    cells = [lock.cell.id for lock in locks]
    with Display(console, Path(settings.events), cells, cases) as display:
        status = run_asv(settings, locks, cases, commit=commit, watch=display.update)
    if display.cannot_write:
        raise ResultsError(
            f"cannot write a record: {display.cannot_write}",
            hint="free disk space, then run the same command again: it continues where it stopped",
        )
    if status not in (0, 2) and not display.measured_something:
        log = log_of(Path(settings.root))
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise IvhlError(
            "asv ended without measuring: " + " | ".join(x.strip() for x in lines[-3:]),
            hint=f"asv's complete output is in {log}",
        )
    return display.left()
