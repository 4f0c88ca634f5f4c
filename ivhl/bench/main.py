"""Measure the cells of one Python through asv and write their records (``ivhl bench``).

New cells are prepared in parallel: their environments, and the files of a first compile.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from ivhl.asv.configuration import settings_of_project
from ivhl.asv.environment import copy_instrument, find_cell, make_cell
from ivhl.asv.files import write_machine
from ivhl.asv.installed import altered_files
from ivhl.asv.machine import asv_machine, save_machine
from ivhl.asv.run import log_of, run_asv
from ivhl.bench.checks import check_device, check_machine, check_room, those_that_fit
from ivhl.bench.progress import Display, RunState
from ivhl.bench.request import Done, Request
from ivhl.bench.work import list_work, records_at, take_shard
from ivhl.errors import IvhlError, LockError, ResultsError, SpecError, UnknownNameError, counted
from ivhl.git import changed_files, find_commit, uncommitted_files
from ivhl.machine.identity import this_machine
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import LockState, ensure_lock, index_options, lock_state
from ivhl.matrix.project import MATRIX, load_project
from ivhl.matrix.spec import CellSpec, Matrix, load_matrix
from ivhl.matrix.wheels import variables_set
from ivhl.measure.alone import only_run_here, only_user_of_gpu, only_writer
from ivhl.measure.earlier import case_key
from ivhl.measure.outcome import failed_everywhere
from ivhl.measure.process import ProcessTree
from ivhl.measure.settings import CELL_VARIABLE, VARIABLE, Settings, write_settings
from ivhl.records.answers import newest_keys
from ivhl.records.files import append_record
from ivhl.tracker.wording import some
from ivhl.workload import Case, broken_benchmarks, load_workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from ivhl.measure.effort import Effort
    from ivhl.records.record import Machine, RunRecord


# In cells that lack records of more cases than this, the run first asks which of them work.
WORTH_A_LOOK = 8


# Version of what an executor may override. docs/adr/0051 says what raises it.
INTERFACE: Final = 1


class Executor:
    """Installs cells and measures in them: on this machine itself, through asv.

    Another distribution adds an executor as a class that derives from this (docs/adr/0051).

    Args:
        root: Root of the project.

    Attributes:
        interface: ``INTERFACE`` for which the class was written; each class sets its own.
        keeps_compiled: Whether a run finds what an earlier run compiled.
        name: As in ``--executor``.
        distribution: Name and version of the distribution that adds it.
    """

    interface: ClassVar[int] = 1
    keeps_compiled: ClassVar[bool] = True
    name: str = "here"
    distribution: str = "ivhl"

    def __init__(self, root: Path) -> None:
        self.root = root

    def run_elsewhere(
        self, arguments: Sequence[str], options: Sequence[str], show: Callable[[str], object]
    ) -> int | None:
        """Run the whole command elsewhere; return its exit code, ``None`` if it runs here.

        Args:
            arguments: Arguments of ``ivhl``, without those that name the executor.
            options: Values of ``--slurm``.
            show: Called with output as it appears.

        Raises:
            SpecError: If the executor takes no such options.
        """
        del arguments, show
        if options:
            raise SpecError("--slurm: needs --executor slurm", hint="add --executor slurm")
        return None

    def command(self, words: Sequence[str]) -> Sequence[str]:
        """Return the command that runs a command of the cells, e.g. with another priority."""
        return words

    def machine(self, request: Request) -> Machine:
        """Return the machine that the records describe.

        Raises:
            SpecError: If its name cannot be a folder name.
        """
        return this_machine(request.machine)

    def check(self, settings: Settings, python: str) -> Settings:
        """Return the settings completed for this executor: with the interpreter of the Python.

        Raises:
            InterpreterError: If this machine lacks the interpreter.
            SpecError: If this machine lacks the device.
        """
        check_device(settings.effort.device)
        save_machine(settings.machine)
        interpreter = find_interpreter(Path(settings.root), python)
        return replace(settings, interpreters={python: str(interpreter.path)})

    def prepare(self, settings: Settings, locks: Sequence[LockState], console: Console) -> None:
        """Do for all cells at once what would otherwise delay each of them (``warm_cells``)."""
        warm_cells(settings, locks, console, self.command)

    def measure(
        self,
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
        state = RunState(Path(settings.events), cells, cases)
        with Display(console, state) as display:
            status = run_asv(
                settings, locks, cases, commit=commit, watch=display.update, under=self.command
            )
        if state.cannot_write:
            raise _cannot_write(f"a record: {state.cannot_write}")
        if status not in (0, 2) and not state.measured_something:
            log = log_of(Path(settings.root))
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise IvhlError(
                "asv ended without measuring: " + " | ".join(x.strip() for x in lines[-3:]),
                hint=f"asv's complete output is in {log}",
            )
        return state.left()


def bench(request: Request, console: Console, executor: Executor | None = None) -> Done:
    """Measure the cells of one Python at one commit.

    Args:
        request: What to measure.
        console: Where progress and warnings are printed.
        executor: Where to measure; ``None`` means on this machine itself.

    Raises:
        SpecError: If a name is unknown, a file is invalid, the root is not a git repository, or
            the results under this machine's name come from another machine.
        LockError: If a lock is missing and cannot be resolved.
        InterpreterError: If this machine lacks the Python.
        ResultsError: If the results cannot be written; records written before stay.
    """
    began = time.monotonic()
    root, device = request.root, request.effort.device
    executor = executor or Executor(root)
    machine = executor.machine(request)
    matrix = load_matrix(root / MATRIX)
    if request.python not in matrix.pythons:
        raise UnknownNameError("Python", request.python, matrix.pythons)
    project = load_project(root)
    results = (request.results or root / "results").resolve()
    settings = settings_of_project(project, machine, results, request.effort)
    cases = request.selection.choose(load_workloads(project.workloads), device)
    commit = resolve_commit(root, request.commit, project.workloads, console)
    if request.base is not None:
        settings = replace(settings, base=find_commit(root, request.base))
    share = cases_of_cells(request, matrix, cases, commit)
    cases = tuple(case for case in cases if any(case in mine for mine in share.values()))
    if device == "cpu":
        cases = those_that_fit(request, cases, console)
        share = {cell: tuple(c for c in mine if c in cases) for cell, mine in share.items()}
    check_room(results)
    check_machine(settings)
    locks = {lock_of(root, matrix, cell, console): mine for cell, mine in share.items()}
    settings = executor.check(settings, request.python)
    with only_run_here(root), only_writer(results), only_user_of_gpu(device, console.print):
        shutil.rmtree(settings.scratch, ignore_errors=True)  # left by killed runs
        log_of(root).unlink(missing_ok=True)
        write_machine(results, machine.name, asv_machine(settings.machine))
        for lock, mine in locks.items():
            if lock.kind != "locked":
                record_unavailable(settings, lock, mine, commit)
        todo = [(lock, mine) for lock, mine in locks.items() if lock.kind == "locked" and mine]
        missing = measure_in_order(
            executor, settings, todo[::-1], ask=asks_first(request, executor), commit=commit,
            console=console,
        )  # fmt: skip
    return Done(
        commit=commit,
        machine=machine.name,
        cells=tuple(share),
        missing=missing,
        cases=tuple(case.name for case in cases),
        log=log_of(root),
        seconds=time.monotonic() - began,
    )


def measure_in_order(
    executor: Executor,
    settings: Settings,
    todo: Sequence[tuple[LockState, tuple[Case, ...]]],
    *,
    ask: bool,
    commit: str,
    console: Console,
) -> tuple[str, ...]:
    """Measure the cases of each cell in the order of worth; return those without a record.

    The newest release comes first in ``todo``. With ``ask``, the run begins with what works: of the
    newest release before the other cells are made, then of the others; then how fast all of it is.
    """

    def measure(
        effort: Effort, locks: Sequence[LockState], cases: tuple[Case, ...]
    ) -> tuple[str, ...]:
        wanted = replace(settings, effort=effort, names=tuple(case.name for case in cases))
        return executor.measure(wanted, locks, cases, commit=commit, console=console)

    def ask_in(cells: Sequence[tuple[LockState, tuple[Case, ...]]]) -> None:
        for lock, cases in cells if ask else ():
            unknown = without_record(settings, lock, cases, commit)
            if len(unknown) > WORTH_A_LOOK:
                measure(replace(settings.effort, processes=0), [lock], unknown)

    ask_in(todo[:1])
    executor.prepare(settings, [lock for lock, _ in todo], console)
    ask_in(todo[1:])
    # One asv run measures the same cases in all its cells.
    alike: dict[tuple[str, ...], tuple[list[LockState], tuple[Case, ...]]] = {}
    for lock, cases in todo:
        alike.setdefault(tuple(case.name for case in cases), ([], cases))[0].append(lock)
    return tuple(
        name for locks, cases in alike.values() for name in measure(settings.effort, locks, cases)
    )


def asks_first(request: Request, executor: Executor) -> bool:
    """Return whether a run begins with what works, whose compiled code the timing then uses.

    Not where nothing compiled is kept, and not where all is to be measured again.
    """
    effort = request.effort
    again = effort.force or effort.cold or effort.flags or request.base is not None
    return effort.is_timed and not again and effort.device == "cpu" and executor.keeps_compiled


def without_record(
    settings: Settings, lock: LockState, cases: Sequence[Case], commit: str
) -> tuple[Case, ...]:
    """Return the cases of which this commit has no record in a cell."""
    run = settings.run_in(lock.cell.as_recorded(lock.sha256), commit)
    known = newest_keys(run.record_file, timed=False)
    return tuple(case for case in cases if case_key(run, case) not in known)


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
    pythons = {*matrix.pythons_of(request.tier), request.python}
    cells = matrix.cells(tuple(pythons), request.releases, request.tier)
    if request.shard is None:
        return {cell: cases for cell in cells if cell.python == request.python}
    records = records_at(request.root, commit)
    work = list_work(cells, cases, records, device=request.effort.device)
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
        LockError: See ``ensure_lock``; or if nothing names the index of a lock of the tier ``next``.
        UnknownNameError: If the matrix lacks the release.
    """
    exists = lock_state(root, cell).kind != "missing"
    lock = ensure_lock(root, matrix, cell)
    # Said here, since it is no failure of the cell, of which a record would be kept.
    index_options(cell, of_next=lock.of_next)
    if not exists:
        console.print(
            f"note: {cell.id} had no lock; wrote {lock.path.relative_to(root)}: commit it, or its "
            "records cannot be repeated",
            soft_wrap=True,
        )
    return lock


def resolve_commit(root: Path, name: str, workloads: str, console: Console) -> str:
    """Return the full hash of a commit; print a note of files that no commit has.

    Args:
        root: Root of the project.
        name: The commit, in any form that git resolves.
        workloads: See ``Project``.
        console: Where the notes are printed.

    Raises:
        SpecError: If the root is not a git repository, or lacks the commit.
    """
    for broken in broken_benchmarks(workloads):
        console.print(f"warning: left out: {broken}", soft_wrap=True)
    # ``module:ATTRIBUTE`` comes from the installed project, which is that of a commit.
    if ":" not in workloads and (names := uncommitted_files(root, workloads)):
        console.print(
            f"warning: not committed: {some(names, 1)}: ivhl repeat cannot repeat their records; "
            "commit first",
            soft_wrap=True,
        )
    commit = find_commit(root, name)
    if name == "HEAD" and (changed := changed_files(root)):
        console.print(
            f"note: {counted(len(changed), 'changed file')} not committed. The project under test "
            f"is commit {commit[:8]}, without these changes. The matrix, the locks, benchmarks/ and "
            "the measuring code come from the working tree",
            soft_wrap=True,
        )
    return commit


def record_unavailable(
    settings: Settings, lock: LockState, cases: Sequence[Case], commit: str
) -> None:
    """Record for each case that nothing can be installed in this cell, and whose fault that is."""
    run = settings.run_in(lock.cell.as_recorded(lock.sha256), commit)
    for case in cases:
        record = failed_everywhere(
            run,
            case,
            phase="environment",
            # A dependency of the project may lack something: that says nothing about this PyTorch.
            failure_class="environment" if lock.because else "unavailable",
            message=lock.message,
            output="",
        )
        write_record(run.record_file, record)


def write_record(path: Path, record: RunRecord) -> None:
    """Append a record.

    Raises:
        ResultsError: If it cannot be written.
    """
    try:
        append_record(path, record)
    except OSError as error:
        raise _cannot_write(f"a record to {path}: {error}") from error


def _cannot_write(what: str) -> ResultsError:
    return ResultsError(
        f"cannot write {what}",
        hint="free disk space, then run the same command again: it continues where it stopped",
    )


# As for the first compile in a run (``measure.process.START_S``).
PATIENCE_S = 300.0


def warm_cells(
    settings: Settings,
    locks: Sequence[LockState],
    console: Console,
    under: Callable[[Sequence[str]], Sequence[str]],
) -> None:
    """Make the cells that are not there, and fill their compile caches beside each other.

    In its first run a cell imports torch from files without bytecode and precompiles headers: 20 s
    of one core. Cells run one after the other, so all of them together would wait for all of that.
    A single new cell gains nothing. What fails here fails again in the run, which records it.

    Args:
        settings: Settings of the run.
        locks: Locks of its cells.
        console: Where it is printed that an environment is ready.
        under: See ``Executor.command``.
    """
    if settings.effort.device != "cpu" or settings.effort.cold:
        return
    root = Path(settings.root)
    path = root / ".asv" / "settings.json"
    write_settings(path, settings)
    warming: list[ProcessTree] = []
    # Environments read their settings from there.
    with variables_set({VARIABLE: str(path)}), ExitStack() as ending:
        new = [lock for lock in locks if _is_new(root, lock)]
        if len(new) < 2:  # noqa: PLR2004
            return
        for lock in new:
            began = time.monotonic()
            with console.status(f"making {lock.cell.id}"), suppress(LockError, OSError):
                folder = make_cell(root, lock.cell)
                seconds = time.monotonic() - began
                console.print(
                    f"{lock.cell.id}: environment ready  ({seconds:.1f} s)",
                    markup=False, soft_wrap=True,
                )  # fmt: skip
                # Before any of its code runs, as in a run.
                if not altered_files(folder, device="cpu", without=settings.project):
                    tree = _warm(settings, path, lock, folder, under)
                    ending.callback(tree.end)
                    warming.append(tree)
        with console.status("compiling for the first time in each cell"):
            for tree in warming:
                tree.wait(PATIENCE_S)


def _is_new(root: Path, lock: LockState) -> bool:
    try:
        return find_cell(root, lock.cell) is None
    except LockError:
        return False


def _warm(
    settings: Settings,
    path: Path,
    lock: LockState,
    folder: Path,
    under: Callable[[Sequence[str]], Sequence[str]],
) -> ProcessTree:
    """Start ``ivhl.measure.warm`` in a cell."""
    cell = lock.cell.as_recorded(lock.sha256)
    instrument = copy_instrument(folder.parent, settings)
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return ProcessTree(
        under([str(folder / "bin" / "python"), "-m", "ivhl.measure.warm"]),
        cwd=instrument,
        env=kept
        | {
            VARIABLE: str(path),
            CELL_VARIABLE: json.dumps(asdict(cell)),
            "PYTHONPATH": str(instrument),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
