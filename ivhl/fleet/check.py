"""Check whether a record of another machine can be imported, and if not, why."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from ivhl.asv.machine import asv_machine, known_machine, machine_differences
from ivhl.fleet.sources import Refused
from ivhl.git import commits_there, lock_texts
from ivhl.machine.identity import name_mistake
from ivhl.matrix.locks import parse_lock
from ivhl.records.age import is_in_future
from ivhl.records.bounds import impossible
from ivhl.records.store import NewerSchemaError, parse_record
from ivhl.records.text import is_printable, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from ivhl.fleet.sources import SourceLine
    from ivhl.records.record import RunRecord
    from ivhl.workload import Workload

_COMMIT = re.compile(r"[0-9a-f]{40}")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+]*")
_TEXT = re.compile(r".{1,100}")
_DEVICE = re.compile(r"cpu|cuda( .{1,100})?")
_IMAGE = re.compile(r"sha256:[0-9a-f]{64}")
_INSTRUMENT = re.compile(r"[0-9a-f]{1,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[^\s/,]+")
# What begins a command that repeats a measurement, and the options that it has.
_COMMAND = re.compile(
    r"(?:ivhl bench|nox -s bench-[\d.]+t? --|python -m ivhl\.measure --out DIR) (?P<rest>.+)"
)
_OPTIONS = frozenset(
    f"--{name}"
    for name in (
        *("python", "torch", "commit", "workload", "size", "variant", "compile-mode", "threads"),
        *("device", "deadline", "memory-limit", "processes", "quick", "force", "docker"),
        "workloads",
    )
)
_SHORT_HASH = 8
# In bytes, since that is what file systems count: names become parts of paths, and so do processor
# and system in asv's graphs.
_LONGEST_NAME = 100
_LONGEST_VERSION = 50  # two of them and the rest of asv's names of files have at most 255
_LONGEST_SHORT_TEXT = 200
_LONGEST_TEXT = 2**16  # of messages and output; the longest in this repository has 1,304
_MOST_OBSERVATIONS = 200
_MOST_WHEELS = 20
_MOST_TAGS = 50
_DAMAGED = "copy the file again from the machine that wrote it"
_NOT_OURS = "only records written by ivhl can be imported; measure the case again there"


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
        return Offered(line.place, parse_record(line.data), line.file)
    except NewerSchemaError as error:
        return Refused(line.place, error.rule, f"{error.hint}, and import it again")
    except ValueError as error:
        return Refused(line.place, printable(str(error)), _DAMAGED)


def load_known(
    root: Path,
    *,
    project: str,
    workloads: Sequence[Workload],
    ours: Iterable[RunRecord],
    results: Path,
    offered: Sequence[Offered],
) -> Known:
    """Return the facts of this repository that the offered records are checked against.

    The oldest record of a new machine describes it, so that the order of files does not matter.

    Args:
        root: Root of the project.
        project: Name of the project.
        workloads: Its current workloads.
        ours: The records in the results. A workload that only they have is retired.
        results: Folder of the results.
        offered: Records of other machines, not checked yet.

    Raises:
        SpecError: If this is not a git repository.
    """
    versions: dict[str, int] = {}
    for record in ours:
        version = max(versions.get(record.workload, 1), record.workload_version)
        versions[record.workload] = version
    versions |= {workload.name: workload.version for workload in workloads}
    well_formed = [one.record for one in offered if not first_mistake(one.record)]
    machines: dict[str, Mapping[str, Any]] = {}
    for record in sorted(well_formed, key=lambda record: record.recorded_at):
        name = record.machine.name
        if name not in machines:
            machines[name] = known_machine(results, name) or asv_machine(record.machine)
    folders = {name: results / name for name in machines}
    return Known(
        project=project,
        workloads=versions,
        commits=commits_there(root, {record.commit for record in well_formed}),
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
    """Return the first mistake in a record by itself; most of these fields become file names."""
    return next(_mistakes(record), "")


def _mistakes(record: RunRecord) -> Iterator[str]:
    cell, machine = record.cell, record.machine
    if not _COMMIT.fullmatch(record.commit):
        yield f"commit: must be 40 hex digits (got {_got(record.commit)})"
    if name_mistake(machine.name):
        yield (
            f"machine.name: must have at most {_LONGEST_NAME} bytes of letters, digits, '_', '-' "
            "and '.', not begin with '-' or '.', and not end in .json or .jsonl "
            f"(got {_got(machine.name)})"
        )
    texts = (("cpu", machine.cpu, _TEXT), ("system", machine.system, _TEXT))
    for field, value, pattern in (*texts, ("device", record.conditions.device, _DEVICE)):
        if not _is_plain(value, pattern):
            place = "conditions" if field == "device" else "machine"
            rule = "cpu, or cuda and the name of the GPU" if field == "device" else "a short text"
            yield f"{place}.{field}: must be {rule} (got {_got(value)})"
    for field, value in (("python", cell.python), ("torch", cell.torch)):
        if not _VERSION.fullmatch(value) or len(value) > _LONGEST_VERSION:
            yield f"cell.{field}: must be a version (got {_got(value)})"
    if cell.id != (made := f"py{cell.python}-torch{cell.torch}"):
        yield f"cell.id: must follow from Python and PyTorch: {made!r} (got {_got(cell.id)})"
    if not _repeats(record.command, record.commit):
        yield (
            "command: must be one that ivhl writes to repeat this record, with nothing else that a "
            f"shell or ivhl would obey (got {_got(record.command)})"
        )
    yield from _case_mistakes(record)
    yield from impossible(record)
    if is_in_future(record.recorded_at):
        yield f"recorded_at: must not be in the future (got {_got(record.recorded_at)})"
    yield from _lacking(record)
    yield from _long_texts(asdict(record), "")


def _repeats(command: str, commit: str) -> bool:
    """Return whether a command only measures the commit again: people copy it from a page."""
    match = _COMMAND.fullmatch(command)
    if match is None or not is_printable(command):
        return False
    try:
        words = shlex.split(match["rest"])
    except ValueError:
        return False
    options = [word for word in words if word.startswith("-")]
    commits = [value for option, value in pairwise(words) if option == "--commit"]
    return (
        # Otherwise a shell reads more than words in it.
        shlex.join(words) == match["rest"]
        and words[0] in options
        and _OPTIONS.issuperset(options)
        and len(options) == len(set(options))
        and all(len(one) >= _SHORT_HASH and commit.startswith(one) for one in commits)
    )


def _case_mistakes(record: RunRecord) -> Iterator[str]:
    if record.cell.lock_sha256 is None and not record.conditions.packages:
        yield "conditions.packages: must list the packages if there is no lock (got none)"
    image = record.conditions.image
    if image is not None and not _IMAGE.fullmatch(image):
        yield f"conditions.image: must be sha256: and 64 hex digits (got {_got(image)})"
    yield from _identity_mistakes(record)
    yield from _stability_mistakes(record)
    for field in ("workload", "size", "variant"):
        value = getattr(record, field)
        if not _NAME.fullmatch(value) or not is_printable(value) or _bytes(value) > _LONGEST_NAME:
            yield f"{field}: must be a name without spaces, '/' and ',' (got {_got(value)})"
    if record.workload_version < 1:
        yield f"workload_version: must be at least 1 (got {_got(record.workload_version)})"


def _stability_mistakes(record: RunRecord) -> Iterator[str]:
    observed = record.conditions.stability or ()
    if len(observed) > _MOST_OBSERVATIONS:
        yield f"conditions.stability: must be at most {_MOST_OBSERVATIONS} (got {len(observed)})"
    for one in observed:
        for field, value in (("check", one.check), ("seen", one.seen)):
            if not _is_plain(value, _TEXT):
                place = f"conditions.stability.{field}"
                yield f"{place}: must be a short text (got {_got(value)})"


def _identity_mistakes(record: RunRecord) -> Iterator[str]:
    """Yield mistakes in the fields that identify environment and code."""
    instrument = record.conditions.instrument
    if not _INSTRUMENT.fullmatch(instrument):
        yield f"conditions.instrument: must be a version or a digest (got {_got(instrument)})"
    if record.sources is not None and not _SHA256.fullmatch(record.sources):
        yield f"sources: must be 64 hex digits (got {_got(record.sources)})"
    if record.benchmark is not None and not _SHA256.fullmatch(record.benchmark):
        yield f"benchmark: must be 64 hex digits (got {_got(record.benchmark)})"
    wheels = record.conditions.wheels or ()
    if len(wheels) > _MOST_WHEELS:
        yield f"conditions.wheels: must be at most {_MOST_WHEELS} (got {len(wheels)})"
    for wheel in wheels:
        for field, value in (("name", wheel.name), ("version", wheel.version)):
            if not _is_plain(value, _TEXT):
                yield f"conditions.wheels.{field}: must be a short text (got {_got(value)})"
        texts = (*wheel.tags, *([] if wheel.build is None else [wheel.build]))
        if len(texts) > _MOST_TAGS or not all(_is_plain(text, _TEXT) for text in texts):
            yield f"conditions.wheels: tags and build must be short texts (got {_got(texts)})"
        if wheel.record_sha256 is not None and not _SHA256.fullmatch(wheel.record_sha256):
            got = _got(wheel.record_sha256)
            yield f"conditions.wheels.record_sha256: must be 64 hex digits (got {got})"


def _lacking(record: RunRecord) -> Iterator[str]:
    if record.speedup is None:
        return
    parts = (("eager", record.eager), ("compiled", record.compiled), ("compile", record.compile))
    for name, part in parts:
        if part is None:
            yield f"{name}: required if there is a speedup (got null)"


def _long_texts(part: object, place: str) -> Iterator[str]:
    if isinstance(part, str) and _bytes(part) > _LONGEST_TEXT:
        yield f"{place}: must have at most {_LONGEST_TEXT} bytes (got {_bytes(part)})"
    if isinstance(part, dict):
        for name, value in part.items():
            yield from _long_texts(name, place)
            yield from _long_texts(value, f"{place}.{name}" if place else name)
    if isinstance(part, tuple):
        for value in part:
            yield from _long_texts(value, place)


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def _unknown(record: RunRecord, known: Known) -> Iterator[tuple[str, str]]:
    cell, machine = record.cell, record.machine
    if record.project != known.project:
        rule = f"project: must be {known.project!r} (got {_got(record.project)})"
        yield rule, "import it in a clone of its own project"
    if record.commit not in known.commits:
        rule = f"commit: must be in this repository (got {record.commit})"
        yield (
            rule,
            (
                "fetch it: git fetch --unshallow, or fetch its branch; if the machine has no git, "
                "measure with --commit"
            ),
        )
    lock = None if cell.lock_sha256 is None else known.locks[cell.id].get(cell.lock_sha256)
    if cell.lock_sha256 is not None and lock is None:
        got = _got(cell.lock_sha256)
        rule = f"cell.lock_sha256: must be that of a committed lock of {cell.id} (got {got})"
        yield (
            rule,
            (
                f"commit the machine's version of envs/locks/{cell.id}.txt, or fetch the branch "
                "that has it"
            ),
        )
    if lock is not None and (mistake := not_locked(record.conditions.packages, lock)):
        yield mistake, "measure in the cell as its lock makes it, or import it without the lock"
    version = known.workloads.get(record.workload)
    if version is None:
        rule = f"workload: must be a workload of this project (got {_got(record.workload)})"
        yield rule, "check out a commit that declares it, and import there"
    elif record.workload_version > version:
        newest = f"must be at most {version}, the version of {record.workload} here"
        rule = f"workload_version: {newest} (got {_got(record.workload_version)})"
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
            got = _got(f"{name}=={here[name]}") if name in here else "none"
            return f"conditions.packages: the lock of the cell has {name}=={version} (got {got})"
    return ""


def _is_plain(value: str, pattern: re.Pattern[str]) -> bool:
    return bool(
        pattern.fullmatch(value)
        and is_printable(value)
        and value.strip()
        and _bytes(value) <= _LONGEST_SHORT_TEXT
    )


def _got(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."
