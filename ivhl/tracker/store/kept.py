"""Read and write what people and commands keep beside the records, one JSON value to a line.

``results/provenance.jsonl`` under version control says which records a workflow signed: ``ivhl
import --attestation`` checks the signature and writes a line; pages show it. The line itself is not
signed: who can push to ``results/`` can write one.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ivhl.errors import ResultsError
from ivhl.records.files import append_line
from ivhl.records.record import RunRecord, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path


Line = TypeVar("Line")


def keep_lines(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Append values to a file, one to a line.

    Raises:
        ResultsError: If the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for value in values:
            append_line(path, json.dumps(value))
    except OSError as error:
        raise ResultsError(
            f"{path} cannot be written: {error}",
            hint="it must be a plain file on a disk with room; then run the same again",
        ) from error


def load_lines(
    path: Path, parse: Callable[[Any], Line], what: str, writer: str
) -> tuple[Line, ...]:
    """Return the values of a file, oldest first; none if there is no file.

    Args:
        path: The file; it may hold anything.
        parse: Makes a value of JSON; raises ``ValueError`` or ``TypeError`` if it cannot.
        what: What a line is, for the message.
        writer: The command or person that writes the lines.

    Raises:
        ResultsError: If the file cannot be read, or a line is none; names the line.
    """
    try:
        if not os.path.lexists(path):
            return ()
        # A pipe would block forever, and a device may never end.
        if not path.is_file():
            raise ResultsError(
                f"{path}: must be a plain file", hint="move what has its name elsewhere"
            )
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ResultsError(
            f"{path}: cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    found = []
    # Not ``splitlines``: JSON may hold other separators of lines as they are.
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(parse(json.loads(line)))
            except (ValueError, TypeError, RecursionError) as error:
                raise ResultsError(
                    f"{path}:{number}: no {what}: {error}",
                    hint=f"correct or remove the line; {writer} writes them",
                ) from error
    return tuple(found)


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds; empty if it holds none, or cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        # A pipe would be read for ever.
        found = json.loads(path.read_bytes()) if path.is_file() else {}
        return found if isinstance(found, dict) else {}
    return {}


NAME: Final = "provenance.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The workflow that signed the files of some records, as its certificate names it.

    Attributes:
        repository: ``OWNER/NAME`` at GitHub.
        workflow: Address of the workflow with the branch or tag that it is from.
        commit: At which the workflow ran.
        runner: ``github-hosted`` or ``self-hosted``: of the job that signed, not that measured.
        run: Address of the run.
        at: When the signature was checked, UTC.
        records: See ``digest_of``.
    """

    repository: str
    workflow: str
    commit: str
    runner: str
    run: str
    at: str
    records: tuple[str, ...]


def digest_of(record: RunRecord) -> str:
    """Return what identifies a record in the file."""
    return hashlib.sha256(to_json(record).encode()).hexdigest()


def load_provenance(results: Path) -> Mapping[str, Provenance]:
    """Return the provenance of each record that has one, by ``digest_of``.

    Raises:
        ResultsError: If a line is none; names the line.
    """
    lines = load_lines(results / NAME, _provenance, "provenance", "ivhl import --attestation")
    return {record: one for one in lines for record in one.records}


def keep_provenance(results: Path, provenance: Provenance) -> None:
    """Append the provenance of some records.

    Raises:
        ResultsError: If the file cannot be written.
    """
    keep_lines(results / NAME, [asdict(provenance)])


def _provenance(data: Any) -> Provenance:  # noqa: ANN401  (JSON)
    if not isinstance(data, dict) or "records" not in data:
        raise TypeError(f"must be an object with records (got {data!r:.60})")
    found = Provenance(**data | {"records": tuple(data["records"])})
    for name, value in asdict(found).items():
        values = value if name == "records" else (value,)
        if not all(isinstance(one, str) for one in values):
            raise TypeError(f"{name} must be text (got {value!r:.60})")
    return found
