"""Check who signed files of records: an attestation that a workflow of GitHub made with Sigstore.

It says which workflow of which repository, at which commit, held these bytes: not that a machine
measured them. docs/adr/0029-attested-records.md tells how they are made.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ivhl.errors import SpecError
from ivhl.tracker.store.kept import Provenance

if TYPE_CHECKING:
    from pathlib import Path

# Who issues the identities of workflows, and their claims in a certificate: the numbers that
# Sigstore's certificate authority has registered (fulcio, docs/oid-info.md).
_ISSUER = "https://token.actions.githubusercontent.com"
_CLAIM = "1.3.6.1.4.1.57264.1"
_CLAIMS = {"workflow": 9, "runner": 11, "commit": 13, "run": 21}
_GITHUB = "https://github.com/"
_SIGNER = re.compile(r"[\w.-]+/[\w.-]+(/[\w./-]+@[\w./-]+)?", re.ASCII)
_PAYLOAD = "application/vnd.in-toto+json"
_LARGEST = 16 << 20
_HINT = "the workflow's job `attest` uploads it; gh attestation download FILE --repo REPO gets it"


@dataclass(frozen=True, slots=True)
class Attested:
    """What an attestation says.

    Attributes:
        files: SHA-256 of the files that it names.
        signer: Who signed it; no records yet.
    """

    files: frozenset[str]
    signer: Provenance


def load_attestations(path: Path, signer: str) -> tuple[Attested, ...]:
    """Return the attestations of a file, each of them signed by the signer.

    Args:
        path: A bundle of Sigstore, or one on each line, as ``gh attestation download`` writes them.
        signer: ``OWNER/NAME`` at GitHub for any workflow of that repository, or one of them at a
            branch or tag, ``OWNER/NAME/.github/workflows/FILE@REF``.

    Raises:
        SpecError: If the file has none, or one is not signed by such a workflow.
    """
    if not _SIGNER.fullmatch(signer):
        raise SpecError(
            f"--signer: must be OWNER/NAME or OWNER/NAME/PATH@REF (got {signer!r})",
            hint="name the repository whose workflow made the records, or that workflow: "
            "OWNER/NAME/.github/workflows/FILE@REF",
        )
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            raise SpecError(f"{path}: must be a file of at most {_LARGEST >> 20} MiB", hint=_HINT)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {error}", hint=_HINT) from error
    try:
        json.loads(text)
        bundles = [text]
    except (ValueError, RecursionError):
        bundles = [line for line in text.split("\n") if line.strip()]
    found = []
    for number, bundle in enumerate(bundles, 1):
        try:
            found.append(_attested(bundle, signer))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SpecError(
                f"{path}: attestation {number} is not signed by {signer}: {error}",
                hint="ask the sender which workflow made the records, and get the file again",
            ) from error
    if not found:
        raise SpecError(f"{path}: has no attestation", hint=_HINT)
    return tuple(found)


def _attested(bundle: str, signer: str) -> Attested:
    kind, payload, claims = verified(bundle, signer)
    if kind != _PAYLOAD:
        raise ValueError(f"its payload must be {_PAYLOAD} (got {kind[:60]!r})")
    statement = json.loads(payload)
    files = frozenset(str(subject["digest"]["sha256"]) for subject in statement["subject"])
    at = datetime.now(UTC).isoformat(timespec="seconds")
    repository = "/".join(signer.split("/")[:2])
    return Attested(files, Provenance(repository=repository, at=at, records=(), **claims))


def verified(bundle: str, signer: str) -> tuple[str, bytes, dict[str, str]]:
    """Return type and content of what a bundle signs, and the claims of its certificate.

    Everything is checked offline, with the keys that the package ``sigstore`` holds.

    Raises:
        ValueError: If it is not signed by the signer.
        SpecError: If ``sigstore`` is not installed.
    """
    try:
        from sigstore.errors import Error  # noqa: PLC0415  (an extra)
        from sigstore.models import Bundle  # noqa: PLC0415
        from sigstore.verify import Verifier, policy  # noqa: PLC0415
    except ImportError as error:
        raise SpecError(
            f"--attestation needs the package sigstore: {error}",
            hint="python -m pip install 'ivhl[attestation]'",
        ) from error
    try:
        signed = Bundle.from_json(bundle)
        owner, name, *workflow = signer.split("/", 2)
        wanted: list[policy.VerificationPolicy] = [
            policy.OIDCIssuerV2(_ISSUER),
            policy.OIDCSourceRepositoryURI(f"{_GITHUB}{owner}/{name}"),
        ]
        if workflow:
            wanted.append(policy.OIDCBuildSignerURI(f"{_GITHUB}{signer}"))
        verifier = Verifier.production(offline=True)
        kind, payload = verifier.verify_dsse(signed, policy.AllOf(wanted))
    except Error as error:
        raise ValueError(str(error)) from error
    extensions = {
        one.oid.dotted_string: one.value for one in signed.signing_certificate.extensions
    }
    claims = {
        name: _text(extensions.get(f"{_CLAIM}.{number}")) for name, number in _CLAIMS.items()
    }
    return kind, payload, claims


def _text(extension: Any) -> str:  # noqa: ANN401  (cryptography's, or none)
    """Return a claim: a text in DER, of which the first bytes are its kind and its length."""
    data = bytes(getattr(extension, "value", b""))
    long_form = 0x80
    start = 2 if len(data) < 2 or data[1] < long_form else 2 + data[1] - long_form  # noqa: PLR2004
    return data[start:].decode(errors="replace")
