"""Read what the cells wrote. A record that cannot be read is named and never hides the others."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from pydantic import TypeAdapter, ValidationError

from ivhl.records import SCHEMA, RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_ADAPTER = TypeAdapter(RunRecord)
_SHOWN_MISTAKES = 3
_SHOWN_VALUE = 60


class NewerSchemaError(ValueError):
    """A record of a schema that this ivhl does not know yet.

    Attributes:
        rule: The rule that it breaks, with the value seen.
        hint: What to do next.
    """

    def __init__(self, schema: str) -> None:
        self.rule = f"schema: must be {SCHEMA!r} or older (got {schema!r})"
        self.hint = "it was written by a newer ivhl: update this one"
        super().__init__(f"{self.rule}; {self.hint}")


class Key(NamedTuple):
    """What a later record replaces. One machine can have two devices, so the device is in it.

    Attributes:
        existing: Whether the environment was there already, and no lock describes it: not the cell
            of the same id.
    """

    machine: str
    device: str
    commit: str
    cell: str
    existing: bool
    workload: str
    workload_version: int
    size: str
    variant: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the results that could not be read.

    Attributes:
        line: Line in the file, from 1; ``None`` if it is the file as a whole.
        rule: The rule that it breaks, with the value seen.
    """

    path: Path
    line: int | None
    rule: str

    def seen_from(self, folder: Path) -> Problem:
        """Return it with the path relative to ``folder``, if it is in there."""
        inside = self.path.is_relative_to(folder)
        return replace(self, path=self.path.relative_to(folder)) if inside else self

    def __str__(self) -> str:
        """Return ``file:line: rule``."""
        place = f"{self.path}" if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.rule}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """Every record that could be read, the latest of each key, and what could not be read.

    Attributes:
        replaced: Records that a later one of the same key replaces: other runs of the same.
    """

    records: tuple[RunRecord, ...]
    problems: tuple[Problem, ...]
    replaced: tuple[RunRecord, ...] = ()


def device_type(record: RunRecord) -> str:
    """Return ``cpu`` or ``cuda``: the machine's name already says which card it has."""
    device = record.conditions.device
    end = next((i for i, c in enumerate(device) if not c.isalpha()), len(device))
    return device[:end]


def is_existing(record: RunRecord) -> bool:
    """Say whether it was made in an environment that no lock describes, only its packages."""
    return record.cell.lock_sha256 is None


def key_of(record: RunRecord) -> Key:
    """Return what the record is about; a later record with the same key replaces it."""
    return Key(
        machine=record.machine.name,
        device=device_type(record),
        commit=record.commit,
        cell=record.cell.id,
        existing=is_existing(record),
        workload=record.workload,
        workload_version=record.workload_version,
        size=record.size,
        variant=record.variant,
    )


def load_records(results: Path) -> Loaded:
    """Return the records under ``results``, the latest of each key, sorted by key.

    Files are append-only, so within a file the later line wins. The same key in two files (results
    merged from another checkout) goes by time. Neither depends on the order of the file system.

    Args:
        results: Folder with ``<machine>/records/*.jsonl``; one that is not there holds no records.
    """
    problems: list[Problem] = []
    latest: dict[Key, tuple[tuple[str, str], RunRecord]] = {}
    replaced: list[RunRecord] = []
    for path in sorted(results.glob("*/records/*.jsonl")):
        in_file: dict[Key, RunRecord] = {}
        for found in _read(path):
            if isinstance(found, Problem):
                problems.append(found)
            else:
                key = key_of(found)
                if key in in_file:
                    replaced.append(in_file[key])
                in_file[key] = found
        for key, record in in_file.items():
            rank = (record.recorded_at, path.as_posix())
            if key in latest:
                replaced.append(min((rank, record), latest[key], key=itemgetter(0))[1])
            if key not in latest or rank > latest[key][0]:
                latest[key] = (rank, record)
    return Loaded(
        records=tuple(latest[key][1] for key in sorted(latest)),
        problems=tuple(problems),
        replaced=tuple(replaced),
    )


def _read(path: Path) -> Iterable[RunRecord | Problem]:
    try:
        data = path.read_bytes()
    except OSError as error:
        yield Problem(path, None, f"cannot be read: {error.strerror}")
        return
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = parse_record(line)
        except ValueError as error:
            yield Problem(path, number, str(error))
        else:
            yield record


def parse_record(line: bytes) -> RunRecord:
    """Return the record that a line of JSON holds.

    Raises:
        NewerSchemaError: If a newer ivhl wrote it.
        ValueError: If it is no record that this ivhl reads; names the field, the rule and the value.
    """
    try:
        return _ADAPTER.validate_json(line)
    except ValidationError as error:
        schema = _schema(line)
        if _number(schema) > _number(SCHEMA):
            raise NewerSchemaError(schema) from None
        raise ValueError(_mistakes(error)) from None


def _mistakes(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False)
    texts = []
    for mistake in found[:_SHOWN_MISTAKES]:
        place = ".".join(str(part) for part in mistake["loc"])
        text = f"{place}: {mistake['msg']}" if place else mistake["msg"]
        if not isinstance(mistake["input"], dict | bytes):
            text += f" (got {_short(repr(mistake['input']))})"
        texts.append(text)
    if len(found) > _SHOWN_MISTAKES:
        texts.append(f"and {len(found) - _SHOWN_MISTAKES} more")
    return "; ".join(texts)


def _schema(line: bytes) -> str:
    with suppress(ValueError, RecursionError, TypeError, KeyError):
        return str(json.loads(line)["schema"])
    return ""


def _number(schema: str) -> int:
    """Return the version of a schema of ours, 0 for anything else."""
    match = re.fullmatch(r"ivhl\.run/([0-9]{1,9})", schema)
    return int(match[1]) if match else 0


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_VALUE else text[: _SHOWN_VALUE - 1] + "…"


def commit_order(root: Path) -> tuple[str, ...]:
    """Return the commits that lead to HEAD of the repository at ``root``, oldest first.

    Empty where git or the repository is missing: the views then order by time instead.
    """
    try:
        log = subprocess.run(
            ["git", "rev-list", "--topo-order", "--reverse", "HEAD"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ()
    return tuple(log.stdout.split())


def latest_per_case(
    records: Iterable[RunRecord], commit_order: Sequence[str] = ()
) -> tuple[RunRecord, ...]:
    """Return, for each machine, device, cell, workload, size and variant, its newest record.

    Of an existing environment and the locked cell of the same id, each has its own.

    A workload's older versions asked another question, so only its newest version is looked at.

    Args:
        records: Records of any commits.
        commit_order: Commits, oldest first. A commit that is not in it (another branch) counts as
            older than all that are; among such, and if it is empty, time decides.
    """
    position = {commit: i for i, commit in enumerate(commit_order)}
    records = list(records)
    version: dict[str, int] = {}
    for record in records:
        known = version.get(record.workload, 0)
        version[record.workload] = max(known, record.workload_version)
    newest: dict[Key, tuple[tuple[int, str, str], RunRecord]] = {}
    for record in records:
        if record.workload_version != version[record.workload]:
            continue
        key = key_of(record)._replace(commit="")
        rank = (position.get(record.commit, -1), record.recorded_at, record.commit)
        if key not in newest or rank > newest[key][0]:
            newest[key] = (rank, record)
    return tuple(newest[key][1] for key in sorted(newest))
