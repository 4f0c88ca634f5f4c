"""What commands read of a project: its workloads, its releases, the folder of its results."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from ivhl.errors import InterpreterError, LockError, ResultsError, SpecError, UnknownNameError
from ivhl.matrix.interpreter import Interpreter, find_interpreter
from ivhl.matrix.locks import LockState, ensure_lock
from ivhl.matrix.project import MATRIX, find_root, load_project
from ivhl.matrix.spec import CellSpec, Matrix, load_matrix
from ivhl.shipped import shipped_records
from ivhl.tracker.changes.confirmations import load_confirmations
from ivhl.tracker.changes.incidents import KnownCauses
from ivhl.tracker.store.index import Index, open_index
from ivhl.tracker.support.expectations import read_expectations
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.views.project import State, load_state
from ivhl.tracker.wording import counted
from ivhl.workload import Workload, broken_benchmarks, load_workloads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.bench.main import Executor


_NAMED: Final = 50


def declared(root: Path) -> tuple[Workload, ...]:
    """Return the workloads of the project; name on standard error what does not import.

    Raises:
        SpecError: If the project is not valid, or no module of its benchmarks imports.
    """
    project = load_project(root)
    workloads = tuple(load_workloads(project.workloads))
    warn(f"left out: {broken}" for broken in broken_benchmarks(project.workloads))
    return workloads


def matrix_beside_records(root: Path, *, is_named: bool = False) -> Matrix | None:
    """Return the matrix for a command that shows records; ``None`` with a warning if it is invalid.

    Records say what they are of without it. What measures, or names cells, refuses an invalid one.

    Args:
        root: Root of the project.
        is_named: Whether the caller names what cannot be read by itself.
    """
    try:
        return load_matrix(root / MATRIX)
    except SpecError as error:
        if not is_named:
            warn([error])
        return None


def locked(
    root: Path, matrix: Matrix, cell: CellSpec, given: Mapping[str, str], hint: str
) -> LockState:
    """Return the lock of a cell, resolved now if it is missing.

    Args:
        root: Root of the project.
        matrix: Its matrix.
        cell: The cell.
        given: Release to the text that was given for it: 9 is sought as 9.0.0.
        hint: What to do where it cannot be made.

    Raises:
        SpecError: If there is no such release; names it as the user did.
        LockError: If nothing can be installed.
    """
    try:
        lock = ensure_lock(root, matrix, cell)
    except UnknownNameError as error:
        text = given.get(error.name, error.name)
        raise SpecError(f"unknown {error.kind} {text!r}", hint=error.hint) from error
    if lock.kind != "locked":
        why = lock.message.splitlines()[0]
        raise LockError(f"{cell.id} cannot be made: {why}", hint=hint)
    return lock


def warn_unread(problems: Iterable[object], *results: Path | None, every: bool = False) -> None:
    """Name on standard error which records could not be read, and the command that names all.

    Args:
        problems: A line each.
        results: Folders of the results, as they were given; ``None`` is the default one.
        every: Whether to name all.
    """
    commands = [
        "ivhl results" + (f" --results {shlex.quote(str(one))}" if one is not None else "")
        for one in results
    ]
    warn(problems, every=every, named_by=" and ".join(commands))


def warn(problems: Iterable[object], *, every: bool = False, named_by: str = "") -> None:
    """Name problems on standard error; of thousands of lines, the first ones.

    Args:
        problems: A line each.
        every: Whether to name all.
        named_by: A command that does; empty if there is none.
    """
    console = Terminal(stderr=True, highlight=False, soft_wrap=True)
    texts = [str(problem) for problem in problems]
    shown = texts if every else texts[:_NAMED]
    if hidden := texts[len(shown) :]:
        more = f"and {counted(len(hidden), 'more problem')}"
        shown.append(f"{more}: {named_by} names all" if named_by else more)
    for text in shown:
        console.label("warning:", text, "bold yellow")


def folder_to_write(given: Path) -> Path:
    """Return a folder without links in its path; one that links to itself is left as it is.

    ``Path.resolve`` raises there before Python 3.13, and what opens the folder says it better.
    """
    return Path(os.path.realpath(given))


def results_folder(given: Path | None, root: Path) -> Path:
    """Return the folder of the results; only the default one may be missing.

    Raises:
        ResultsError: If one is given that is no folder: a verdict over nothing would look like one.
    """
    if given is None:
        return root / "results"
    if not given.is_dir():
        raise ResultsError(
            f"--results: must be a folder (got {str(given)!r})",
            hint=f"the default is {root / 'results'}",
        )
    return given


def known_changes(folder: Path, root: Path) -> KnownCauses:
    """Return what is kept about changes beside the records; warns of known failures it cannot read.

    Raises:
        ResultsError: If a line of a file in the folder is none; names the line.
    """
    expectations, unread = read_expectations(root)
    warn(unread)
    return KnownCauses(load_confirmations(folder), expectations)


def stored(results: Path | None, *, every: bool = False) -> tuple[Path, Path, Index]:
    """Return the root, the folder of the results, and their index; name what cannot be read.

    Args:
        results: The folder as it was given.
        every: Whether to name all that cannot be read.

    Raises:
        ResultsError: If there is no record.
    """
    root = find_root()
    folder = results_folder(results, root)
    index = open_index(folder)
    warn_unread(index.problems, results, every=every)
    check_any(index, folder)
    return root, folder, index


def stored_state(results: Path | None) -> tuple[Path, Path, State]:
    """Return the root, the folder of the results, and the state with the newest of each case.

    What cannot be read is named; there may be no record. Without a project, the records that ship
    with ivhl answer.
    """
    try:
        root = find_root()
    except SpecError:
        root = shipped_records()
        if not (root / MATRIX).is_file():
            raise
        warn(["no project here: these are the records that ship with ivhl"])
    folder = results_folder(results, root)
    state = load_state(root, folder, history=False)
    warn_unread(state.problems, results)
    return root, folder, state


def check_any(index: Index, folder: Path) -> None:
    """Refuse a folder without records.

    Raises:
        ResultsError: A view of nothing would look like one in which nothing happened.
    """
    if not index.entries:
        raise no_records(folder)


def no_records(folder: Path) -> ResultsError:
    """Return the error of every command that finds no records."""
    hint = "measure first, e.g. nox -s bench-3.12, or ivhl bench"
    if any(folder.glob("records/*.jsonl")):
        hint = f"name the machine, or the folder of all: {os.path.normpath(folder / '..')}"
    return ResultsError(f"no records in {folder}", hint=hint)


def interpreter_of(root: Path, python: str) -> Interpreter | None:
    """Return the interpreter for a Python; ``None`` if there is none on this machine."""
    try:
        return find_interpreter(root, python, install=False)
    except InterpreterError:
        return None


def given(context: typer.Context, *, without: Sequence[str]) -> list[str]:
    """Return the arguments of a command, without those that have their default."""
    words: list[str] = []
    for option in context.command.params:
        value = context.params.get(str(option.name))
        if option.name in without or value in (None, [], ()) or value == option.default:
            continue
        if value is True:
            words.append(option.opts[0])
        else:
            values = value if isinstance(value, list | tuple) else [value]
            for one in values:
                # The job runs in the root: a path relative to this folder would not resolve there.
                words += [option.opts[0], str(one.resolve() if isinstance(one, Path) else one)]
    return words


def executor_for(
    root: Path, context: typer.Context, name: str, slurm: Sequence[str] | None
) -> Executor:
    """Return what measures for a command; exit if it has run the whole command elsewhere.

    Raises:
        SpecError: See ``executor_of``; or if options of Slurm are given to another executor.
        typer.Exit: With the exit code of the command that ran elsewhere.
    """
    from ivhl.bench.executors import executor_of, naming  # noqa: PLC0415  (it needs all that measures)

    executor = executor_of(name, root)
    words = [str(context.info_name), *given(context, without=("executor", "slurm"))]
    with naming(executor.name, executor.distribution):
        code = executor.run_elsewhere(words, slurm or (), lambda text: typer.echo(text, nl=False))
    if code is not None:
        raise typer.Exit(code)
    return executor
