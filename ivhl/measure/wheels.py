"""Which files were installed: equal versions of two indexes are different builds."""

from __future__ import annotations

import csv
import hashlib
from email.parser import HeaderParser
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Final

from ivhl.records import Wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

# The last two are what PyTorch's own index calls Triton beside nightly and ROCm builds.
NAMES: Final = ("torch", "triton", "pytorch-triton", "pytorch-triton-rocm")
# Of a distribution's own folder, what came in the wheel. Installers write the rest: who installed
# it (INSTALLER), why (REQUESTED), from where (direct_url.json, uv_cache.json).
_OF_THE_WHEEL: Final = frozenset({"METADATA", "WHEEL"})


@cache
def installed_wheels() -> tuple[Wheel, ...]:
    """Return what is installed of PyTorch and Triton; it is looked at once per process."""
    found = []
    for name in NAMES:
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        found.append(wheel_of(name, installed))
    return tuple(found)


def wheel_of(name: str, installed: Distribution) -> Wheel:
    """Return what tells the wheel of a distribution from others of its version."""
    about = HeaderParser().parsestr(installed.read_text("WHEEL") or "")
    lines = sorted(set(_files(installed.read_text("RECORD") or "")))
    text = "\n".join(lines).encode()
    return Wheel(
        name=name,
        version=installed.version,
        build=about.get("Build"),
        tags=tuple(sorted(about.get_all("Tag", []))),
        record_sha256=hashlib.sha256(text).hexdigest() if lines else None,
    )


def _files(record: str) -> Iterator[str]:
    """Yield name and hash of each file that the wheel brought and an installer leaves as it is.

    Without a hash are RECORD itself and, as pip writes it, bytecode. What lies above the folder of
    packages are scripts, whose first line names the interpreter.
    """
    for path, digest, *_ in csv.reader(record.splitlines()):
        parts = path.split("/")
        if not digest or parts[0] in {"", ".."} or path.endswith(".pyc"):
            continue
        if parts[0].endswith(".dist-info") and "/".join(parts[1:]) not in _OF_THE_WHEEL:
            continue
        yield f"{path},{digest}"
