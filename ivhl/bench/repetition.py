"""Measure a record again in its own environment, at its own commit (``ivhl repeat``).

A clone of the repository, beside the working files of runs, is put at the commit of the record and
given the lock of the record, also if today's is another. Nothing of the working tree changes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import ivhl
from ivhl.bench.experiment import Runs
from ivhl.bench.request import Request, Selection
from ivhl.errors import IvhlError, LockError, ResultsError, SpecError
from ivhl.git import clone_at, commits_there, lock_texts, texts_of
from ivhl.machine.identity import this_machine
from ivhl.matrix.locks import digest_in, lock_path, matrix_digest, parse_lock, put_lock
from ivhl.matrix.project import MATRIX
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.measure.alone import only_run_here
from ivhl.measure.effort import Effort
from ivhl.measure.process import run_tree
from ivhl.records.files import write_whole
from ivhl.tracker.causes.attribution import Treatment
from ivhl.tracker.changes.repetition import Repetition, judge_repetition, other_machine
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import case_name, device_type, is_existing
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from ivhl.records.record import RunRecord

# What of a run that failed is shown.
_SHOWN_LINES: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeated:
    """What came of it.

    Attributes:
        judged: What the second run says.
        again: The second run.
        lock: What is known of the lock, as a sentence.
        folder: Where the clone, the environment and the second run are, if they were kept.
    """

    judged: Repetition
    again: RunRecord
    lock: str
    folder: Path


def repeat(
    root: Path,
    recorded: RunRecord,
    *,
    results: Path,
    console: Console,
    keep: bool = False,
) -> Repeated:
    """Build the environment of a record, run its case, and judge what comes of it.

    Args:
        root: Root of the project.
        recorded: The record.
        results: Folder of the results, from which is known what runs of the same code differ by.
        console: Where progress is printed.
        keep: Whether the clone and the environment stay.

    Raises:
        SpecError: If the record cannot be repeated, or git lacks its commit.
        LockError: If its lock is gone, or the environment cannot be made from it.
        ResultsError: If the run leaves no record.
    """
    cell = CellSpec(recorded.cell.python, recorded.cell.torch)
    check_repeatable(recorded)
    commit = recorded.same_as or recorded.commit
    if commit not in commits_there(root, [commit]):
        raise SpecError(
            f"git knows no commit {commit}, which the record names, in {root}",
            hint="fetch it: git fetch --unshallow, or fetch its branch",
        )
    text = recorded_lock(root, cell, recorded.cell.lock_sha256 or "")
    folder = root / ".asv" / "repeat" / f"{commit[:8]}-{cell.id}-{_sha256(text)[:8]}"
    here = this_machine(recorded.machine.name)
    if other_machine(recorded.machine, here):
        here = this_machine()
    with only_run_here(root), _folder(folder, keep=keep):
        tree = clone_at(root, commit, folder / "tree")
        install_lock(root, tree, cell, text)
        known = _describe(root, cell, text)
        console.print(f"{cell.id}: {known}")
        found = folder / "results"
        found.mkdir(parents=True)
        effort = Effort(device=device_type(recorded), threads=recorded.conditions.threads)
        arm = Treatment(cell.python, cell.torch, commit)
        request = Request(root=tree, python=cell.python, machine=here.name, results=found)
        runs = Runs(request, console, bench_in_clone)
        try:
            runs.run([arm], Selection(cases=(case_name(recorded),)), effort)
        except SpecError as error:
            if recorded.benchmark is None:
                raise
            raise SpecError(
                str(error),
                hint=f"a benchmark that {commit[:8]} lacks was not committed when it was measured, "
                "or only later: commit it, and measure that",
            ) from error
        again = _newest(found, recorded)
        return Repeated(
            judged=judge_repetition(recorded, again, open_index(results).spreads),
            again=again,
            lock=known,
            folder=folder,
        )


def check_repeatable(record: RunRecord) -> None:
    """Refuse a record that says too little of how it was made.

    Raises:
        SpecError: With what is missing.
    """
    cell = record.cell.id
    if record.uncommitted:
        raise SpecError(
            f"the record was made from a working tree that differed from {record.commit[:8]}: no "
            "commit has what was measured",
            hint="commit what is measured, and measure that",
        )
    if is_existing(record):
        raise SpecError(
            f"the record was made in an existing environment of {cell}: no lock describes it",
            hint="its packages are in the record (ivhl results --json); ivhl bench locks a cell",
        )
    if record.failure is not None and record.failure.failure_class == "unavailable":
        raise SpecError(
            f"nothing was installed for the record: {cell} has no distribution",
            hint=f"ask the index again: ivhl lock --torch {record.cell.torch}",
        )


def recorded_lock(root: Path, cell: CellSpec, sha256: str) -> bytes:
    """Return the text of a lock that a record names, from git or the working tree.

    Raises:
        LockError: If neither has it.
    """
    text = lock_texts(root, [cell.id])[cell.id].get(sha256)
    path = lock_path(root, cell)
    if text is None and path.is_file() and _sha256(path.read_bytes()) == sha256:
        text = path.read_bytes()
    if text is None:
        raise LockError(
            f"the lock {sha256[:12]} of {cell.id}, which the record names, is in no commit here and "
            "is not today's",
            hint="fetch the commit that has it (git fetch --all --unshallow), or copy the file to "
            f"{path.relative_to(root)}",
        )
    return text


def install_lock(root: Path, tree: Path, cell: CellSpec, text: bytes) -> None:
    """Put a lock into the clone, with the matrix from which it was made.

    Raises:
        LockError: If no commit has that matrix.
        SpecError: If the matrix of the clone cannot be read.
    """
    wanted = digest_in(text.decode())
    for candidate in (None, *texts_of(root, MATRIX.as_posix())):
        if candidate is not None:
            write_whole(tree / MATRIX, candidate, tree)
        try:
            matrix = load_matrix(tree / MATRIX)
        except SpecError:
            if candidate is None:
                raise
            continue
        if cell.python in matrix.pythons and matrix_digest(matrix, cell) == wanted:
            break
    else:
        raise LockError(
            f"no {MATRIX} in git has the digest {wanted or 'that is missing'} from which the lock "
            f"of {cell.id} was made",
            hint="fetch the commit that has it: git fetch --all --unshallow",
        )
    put_lock(tree, cell, text)


def bench_in_clone(request: Request, console: Console) -> None:
    """Run ``ivhl bench`` in a clone, as ``bench`` runs in the project itself.

    Args:
        request: Its root is the clone. The command line names one case at a time.
        console: Where progress is printed.

    Raises:
        IvhlError: See ``run_ivhl``.
    """
    effort, processes = request.effort, request.effort.processes
    for case in request.selection.cases:
        workload, size, variant = case.split("/")
        words = [
            *("bench", "--python", request.python, "--torch", *request.releases),
            *("--commit", request.commit, "--workload", workload, "--size", size),
            *("--variant", variant, "--machine", str(request.machine), "--force"),
            *("--device", effort.device, "--threads", str(effort.threads)),
            *("--results", str(request.results)),
            *(("--processes", str(processes)) if processes != Effort().processes else ()),
        ]
        run_ivhl(request.root, words, console)


def run_ivhl(folder: Path, arguments: Sequence[str], console: Console) -> None:
    """Run ``ivhl`` in a folder: that of the folder itself if it has one, so the same instrument.

    Args:
        folder: A clone of the project.
        arguments: Of the command.
        console: Where progress is printed.

    Raises:
        IvhlError: If it fails; the error and its class are those that it printed.
    """
    own = (folder / "ivhl" / "__main__.py").is_file()
    home = folder if own else Path(ivhl.__file__).parents[1]
    with console.status("making the environment, then measuring"):
        done = run_tree(
            [sys.executable, "-m", "ivhl", *arguments],
            isolated=False,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(home), "NO_COLOR": "1", "COLUMNS": "1000"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines()]
        said = " | ".join(list(filter(None, lines))[-_SHOWN_LINES:])
        kinds = {kind.exit_code: kind for kind in (SpecError, LockError, ResultsError)}
        raise kinds.get(done.returncode, IvhlError)(
            f"ivhl bench ended with status {done.returncode}: {said.removeprefix('error: ')}",
            hint="--keep leaves the clone, in which the command can be run by hand",
        )


@contextmanager
def _folder(folder: Path, *, keep: bool) -> Iterator[None]:
    """Begin with an empty folder, and remove it in the end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _describe(root: Path, cell: CellSpec, text: bytes) -> str:
    """Return what lock it is, and whether it is today's."""
    path = lock_path(root, cell)
    today = path.read_bytes() if path.is_file() else None
    packages = counted(len(parse_lock(text.decode())), "package")
    which = "as today's" if today == text else "today has another" if today else "today has none"
    return f"{packages} by the recorded lock {_sha256(text)[:12]} ({which})"


def _newest(folder: Path, recorded: RunRecord) -> RunRecord:
    index = open_index(folder)
    found = [r for r in index.read(index.entries) if case_name(r) == case_name(recorded)]
    if not found:
        raise ResultsError(
            f"no record of {case_name(recorded)} was written",
            hint="--keep leaves asv's output in tree/.asv/asv.log of the clone",
        )
    again = max(found, key=lambda record: record.recorded_at)
    if again.failure is not None and again.failure.failure_class == "environment":
        raise LockError(
            f"the recorded environment of {recorded.cell.id} cannot be made any more: "
            f"{again.failure.message}",
            hint="files of the lock are gone from the index, or it cannot be reached; an index that "
            "still has them: UV_INDEX_URL, UV_FIND_LINKS",
        )
    return again


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
