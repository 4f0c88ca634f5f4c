"""Identify the installed wheels: the same version from two indexes can be different builds."""

from __future__ import annotations

import csv
import hashlib
from email.parser import HeaderParser
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Final

from ivhl.records.record import Wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

# The last two are Triton's names on PyTorch's own index, for nightly and ROCm builds.
NAMES: Final = ("torch", "triton", "pytorch-triton", "pytorch-triton-rocm")
# Files of the .dist-info folder that come from the wheel. Installers write the others: INSTALLER,
# REQUESTED, direct_url.json, uv_cache.json.
_OF_THE_WHEEL: Final = frozenset({"METADATA", "WHEEL"})


@cache
def installed_wheels() -> tuple[Wheel, ...]:
    """Return the installed wheels of PyTorch and Triton, read once per process."""
    found = []
    for name in NAMES:
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        found.append(wheel_of(name, installed))
    return tuple(found)


def wheel_of(name: str, installed: Distribution) -> Wheel:
    """Return what distinguishes a distribution's wheel from others of the same version."""
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
    """Yield ``path,hash`` of each file that installers copy from the wheel without change.

    Left out: files without a hash (RECORD, and bytecode as pip lists it), and files above the
    packages folder, which are scripts whose first line names the interpreter.
    """
    for path, digest, *_ in csv.reader(record.splitlines()):
        parts = path.split("/")
        if not digest or parts[0] in {"", ".."} or path.endswith(".pyc"):
            continue
        if parts[0].endswith(".dist-info") and "/".join(parts[1:]) not in _OF_THE_WHEEL:
            continue
        yield f"{path},{digest}"
