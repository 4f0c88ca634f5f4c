"""Which records a workflow signed, kept in ``results/provenance.jsonl`` under version control.

``ivhl import --attestation`` checks the signature and writes a line; pages show it. The line itself
is not signed: who can push to ``results/`` can write one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from ivhl.errors import ResultsError
from ivhl.records.files import append_line
from ivhl.records.record import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ivhl.records.record import RunRecord

NAME: Final = "provenance.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a certificate says of the workflow that signed the files of some records.

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
    path = results / NAME
    try:
        if not path.is_file():
            return {}
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ResultsError(
            f"{path}: cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    found: dict[str, Provenance] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                one = _provenance(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise ResultsError(
                    f"{path}:{number}: no provenance: {error}",
                    hint="correct or remove the line; ivhl import --attestation writes them",
                ) from error
            found |= dict.fromkeys(one.records, one)
    return found


def keep_provenance(results: Path, provenance: Provenance) -> None:
    """Append the provenance of some records.

    Raises:
        ResultsError: If the file cannot be written.
    """
    path = results / NAME
    try:
        append_line(path, json.dumps(asdict(provenance)))
    except OSError as error:
        raise ResultsError(
            f"{path} cannot be written: {error}", hint="make room, and import the same files again"
        ) from error


def _provenance(data: Any) -> Provenance:  # noqa: ANN401  (JSON)
    found = Provenance(**data | {"records": tuple(data["records"])})
    for name, value in asdict(found).items():
        values = value if name == "records" else (value,)
        if not all(isinstance(one, str) for one in values):
            raise TypeError(f"{name} must be text (got {value!r:.60})")
    return found
