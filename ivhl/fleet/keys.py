"""Sign results of a fleet, and check who signed them, with ``ssh-keygen -Y``."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from ivhl.errors import SpecError
from ivhl.records.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

# Beside the table of the observatory: a line for each machine, `MACHINE ssh-ed25519 AAAA...`.
SIGNERS: Final = "allowed_signers"
_NAMESPACE: Final = "ivhl"


def sign(text: str, key: Path) -> str:
    """Return the signature of a text.

    Args:
        text: The text to sign.
        key: A private key of ssh, or the public key of one that an agent holds.

    Raises:
        SpecError: If the key cannot sign.
    """
    return _ssh_keygen(text, "sign", "-f", str(key), place=str(key))


def check_signature(result: Mapping[str, Any], signers: Path) -> None:
    """Check that a result is signed by the machine whose role wrote it.

    Args:
        result: As ``FleetQueue.results`` returns them.
        signers: A file of allowed signers.

    Raises:
        ValueError: If it is not.
    """
    if not result["signature"]:
        raise ValueError(f"must be signed by {result['machine']}, since {signers.name} exists")
    with TemporaryDirectory(prefix="ivhl-signature-") as name:
        signature = Path(name) / "signature"
        signature.write_text(result["signature"], encoding="utf-8")
        words = ("-f", str(signers), "-I", result["machine"], "-s", str(signature))
        try:
            _ssh_keygen(result["found"], "verify", *words, place=signers.name)
        except SpecError as error:
            raise ValueError(f"must be signed by {result['machine']}: {error}") from error


def _ssh_keygen(text: str, *words: str, place: str) -> str:
    try:
        done = subprocess.run(
            ["ssh-keygen", "-Y", words[0], "-n", _NAMESPACE, *words[1:]],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise SpecError(
            f"ssh-keygen cannot be started: {error}", hint="install openssh"
        ) from error
    if done.returncode:
        raise SpecError(
            f"{place}: {printable((done.stderr or done.stdout).strip())}",
            hint="use a private key without passphrase",
        )
    return done.stdout
