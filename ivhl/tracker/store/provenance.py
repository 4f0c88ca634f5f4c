"""Which records a workflow signed, kept in ``results/provenance.jsonl`` under version control.

``ivhl import --attestation`` checks the signature and writes a line; pages show it. The line itself
is not signed: who can push to ``results/`` can write one.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from ivhl.records.record import to_json
from ivhl.tracker.store.kept import keep_lines, load_lines

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
