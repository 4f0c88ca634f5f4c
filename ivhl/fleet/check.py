"""Check whether a record of another machine can be imported, and if not, why."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from ivhl.asv.machine import asv_machine, known_machine, machine_differences
from ivhl.fleet.sources import Refused, SourceLine
from ivhl.git import commits_there, lock_texts
from ivhl.matrix.locks import parse_lock
from ivhl.records.age import is_in_future
from ivhl.records.bounds import shown
from ivhl.records.reader import NewerSchemaError, read_record
from ivhl.records.text import printable
from ivhl.tracker.store.records import newest_versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ivhl.records.identity import CaseInCell
    from ivhl.records.record import RunRecord
    from ivhl.workload import Workload

# What begins a command that repeats a measurement, and the options that it has.
_COMMAND = re.compile(
    r"(?:ivhl bench|nox -s bench-[\d.]+t? --|python -m ivhl\.measure --out DIR) (?P<rest>.+)"
)
_OPTIONS = frozenset(
    f"--{name}"
    for name in (
        *("python", "torch", "commit", "workload", "size", "variant", "compile-mode", "threads"),
        *("device", "deadline", "memory-limit", "processes", "quick", "force", "executor"),
        "docker",  # in records of before 2026-12
        "workloads",
    )
)
_SHORT_HASH = 8
_NOT_OURS = (
    "copy the file again from the machine that wrote it; if it is whole, measure the case again "
    "there: only records written by ivhl can be imported"
)

_OF_LIBRARIES = "put the file into observatory/records, where ivhl reads it; nothing imports it"


@dataclass(frozen=True, slots=True)
class Offered:
    """A record, the place that it was read from, and the SHA-256 of its file."""

    place: str
    record: RunRecord
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The facts of this repository that offered records are checked against.

    Attributes:
        project: Name of the project.
        workloads: Current version by workload.
        commits: Full hashes.
        locks: By cell, the packages of every version of its lock, by sha256.
        machines: asv's entry by machine.
        blocked: Machine names for which the results hold something other than a folder.
    """

    project: str
    workloads: Mapping[str, int]
    commits: frozenset[str]
    locks: Mapping[str, Mapping[str, Mapping[str, str]]]
    machines: Mapping[str, Mapping[str, Any]]
    blocked: frozenset[str]


def read_line(line: SourceLine) -> Offered | Refused:
    """Return the record of a line, or why this ivhl cannot read it."""
    try:
        return Offered(line.place, read_record(line.data), line.file)
    except NewerSchemaError as error:
        return Refused(line.place, error.rule, f"{error.hint}, and import it again")
    except ValueError as error:
        if b'"ivhl.observed/' in line.data:
            return Refused(line.place, "is a record of the observatory", _OF_LIBRARIES)
        return Refused(line.place, printable(str(error)), _NOT_OURS)


def load_known(
    root: Path,
    *,
    project: str,
    workloads: Sequence[Workload],
    ours: Iterable[CaseInCell],
    results: Path,
    offered: Sequence[Offered],
) -> Known:
    """Return the facts of this repository that the offered records are checked against.

    The oldest record of a new machine describes it, so that the order of files does not matter.

    Args:
        root: Root of the project.
        project: Name of the project.
        workloads: Its current workloads.
        ours: The cases in the results. A workload that only they have is retired.
        results: Folder of the results.
        offered: Records of other machines, not checked yet.

    Raises:
        SpecError: If this is not a git repository.
    """
    current = {workload.name: workload.version for workload in workloads}
    well_formed = [one.record for one in offered if not first_mistake(one.record)]
    machines: dict[str, Mapping[str, Any]] = {}
    for record in sorted(well_formed, key=lambda record: record.recorded_at):
        name = record.machine.name
        if name not in machines:
            machines[name] = known_machine(results, name) or asv_machine(record.machine)
    folders = {name: results / name for name in machines}
    return Known(
        project=project,
        workloads=newest_versions(ours) | current,
        commits=commits_there(root, {c for r in well_formed for c in (r.commit, r.same_as) if c}),
        locks={
            cell: {sha256: _pinned(text) for sha256, text in texts.items()}
            for cell, texts in lock_texts(root, {r.cell.id for r in well_formed}).items()
        },
        machines=machines,
        blocked=frozenset(
            name
            for name, folder in folders.items()
            if folder.is_symlink() or (folder.exists() and not folder.is_dir())
        ),
    )


def _pinned(text: bytes) -> Mapping[str, str]:
    """Return the packages of a lock; of a statement that the cell is unavailable, none."""
    try:
        return {pin.name: pin.version for pin in parse_lock(text.decode())}
    except ValueError:
        return {}


def refusal(one: Offered, known: Known) -> Refused | None:
    """Return why a record is refused, or ``None`` if it is not."""
    mistake = first_mistake(one.record)
    if mistake:
        return Refused(one.place, mistake, _NOT_OURS)
    for rule, hint in _unknown(one.record, known):
        return Refused(one.place, rule, hint)
    return None


def first_mistake(record: RunRecord) -> str:
    """Return the first rule that a record breaks, of those that hold for what others measured."""
    return next(_mistakes(record), "")


def _mistakes(record: RunRecord) -> Iterator[str]:
    if not _repeats(record.command, record.commit):
        yield (
            "command: must be one that ivhl writes to repeat this record, with nothing else that a "
            f"shell or ivhl would obey (got {shown(record.command)})"
        )
    if record.cell.lock_sha256 is None and not record.conditions.packages:
        yield "conditions.packages: must list the packages if there is no lock (got none)"
    if is_in_future(record.recorded_at):
        yield f"recorded_at: must not be in the future (got {shown(record.recorded_at)})"


def _repeats(command: str, commit: str) -> bool:
    """Return whether a command only measures the commit again: people copy it from a page."""
    match = _COMMAND.fullmatch(command)
    if match is None:
        return False
    try:
        words = shlex.split(match["rest"])
    except ValueError:
        return False
    options = [word for word in words if word.startswith("-")]
    commits = [value for option, value in pairwise(words) if option == "--commit"]
    executors = {value for option, value in pairwise(words) if option == "--executor"}
    return (
        # Otherwise a shell reads more than words in it.
        shlex.join(words) == match["rest"]
        and words[0] in options
        and _OPTIONS.issuperset(options)
        and len(options) == len(set(options))
        and executors <= {"docker"}
        and all(len(one) >= _SHORT_HASH and commit.startswith(one) for one in commits)
    )


def _unknown(record: RunRecord, known: Known) -> Iterator[tuple[str, str]]:
    cell, machine = record.cell, record.machine
    if record.project != known.project:
        rule = f"project: must be {known.project!r} (got {shown(record.project)})"
        yield rule, "import it in a clone of its own project"
    for field, commit in (("commit", record.commit), ("same_as", record.same_as)):
        if commit is None or commit in known.commits:
            continue
        rule = f"{field}: must be in this repository (got {commit})"
        hint = "fetch it: git fetch --unshallow, or fetch its branch; if the machine has no git, "
        yield rule, f"{hint}measure with --commit"
    lock = None if cell.lock_sha256 is None else known.locks[cell.id].get(cell.lock_sha256)
    if cell.lock_sha256 is not None and lock is None:
        got = shown(cell.lock_sha256)
        rule = f"cell.lock_sha256: must be the hash of a committed lock of {cell.id} (got {got})"
        hint = f"commit the machine's version of envs/locks/{cell.id}.txt, or fetch the branch "
        yield rule, f"{hint}that has it"
    if lock is not None and (mistake := not_locked(record.conditions.packages, lock)):
        yield mistake, "measure in a cell made from its lock, or import it without the lock"
    version = known.workloads.get(record.workload)
    if version is None:
        rule = f"workload: must be a workload of this project (got {shown(record.workload)})"
        yield rule, "check out a commit that declares it, and import there"
    elif record.workload_version > version:
        newest = f"must be at most {version}, the version of {record.workload} here"
        rule = f"workload_version: {newest} (got {shown(record.workload_version)})"
        yield rule, "check out the commit that raised it, and import there"
    if machine.name in known.blocked:
        rule = f"machine.name: {machine.name!r} must be a folder in the results"
        yield rule, "a file or link has this name: move it elsewhere"
    different = machine_differences(known.machines[machine.name], machine)
    if different:
        rule = f"machine {machine.name!r} here is another machine: " + "; ".join(different)
        yield rule, "measure there with another name: --machine NAME"


def not_locked(packages: Sequence[str], lock: Mapping[str, str]) -> str:
    """Return where the packages of an environment differ from its lock; empty if nowhere.

    The environment also holds the project, which no lock lists. A cell that could not be made lists
    no packages.
    """
    installed = dict(package.partition("==")[::2] for package in packages)
    here: dict[str, str] = {canonicalize_name(name): v for name, v in installed.items()}
    for name, version in lock.items() if packages else ():
        if here.get(name) != version:
            got = shown(f"{name}=={here[name]}") if name in here else "none"
            return f"conditions.packages: the lock of the cell has {name}=={version} (got {got})"
    return ""
