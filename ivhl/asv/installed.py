"""Check that the packages in a cell are those of their wheels, before anything is measured.

uv installs hard links into its cache (docs/adr/0026): code that edits a file of its environment
edits it for every later environment, and the hashes of a lock are of the wheels, which uv does not
read again. Each wheel lists the hashes of its files in ``RECORD``.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from ivhl.tracker.store.kept import read_object

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SEEN = "ivhl-verified.json"
# Packages and libraries of CUDA: three quarters of the bytes of a cell, of which a run on the CPU
# calls nothing.
_ONLY_ON_GPU = ("nvidia", "cuda")
_LIBRARIES_ON_GPU = (
    "torch/lib/libtorch_cuda",
    "triton/backends/nvidia/bin/",
    "triton/backends/nvidia/lib/",
)


def altered_files(environment: Path, *, device: str, without: str = "") -> list[str]:
    """Return the installed files that differ from their wheels, relative to ``site-packages``.

    A file with the times, size and inode of the last check is not read again: the system sets
    ``ctime`` at each change, and no program can set it back.

    Args:
        environment: Folder of a virtual environment.
        device: ``cpu`` or ``cuda``.
        without: A package to leave out: the project, which is installed anew for each commit.

    Raises:
        OSError: If a folder cannot be read.
    """
    packages = next(environment.glob("lib/python*/site-packages"), None)
    if packages is None:
        return ["lib/python*/site-packages"]
    seen = read_object(environment / _SEEN)
    now: dict[str, str] = {}
    altered: list[str] = []

    def check(name: str, expected: str) -> None:
        path = packages / name
        try:
            state = _state(path)
            if seen.get(name) != f"{state} {expected}" and _digest(path, expected) != expected:
                altered.append(name)
            else:
                now[name] = f"{state} {expected}"
        except (OSError, ValueError):
            altered.append(name)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done in [pool.submit(check, *one) for one in _listed(packages, device, without)]:
            done.result()
    with suppress(OSError):  # a full disk: everything is read again at the next run
        (environment / _SEEN).write_text(json.dumps(now), encoding="utf-8")
    return sorted(altered)


def _listed(packages: Path, device: str, without: str) -> Iterator[tuple[str, str]]:
    """Yield the files of all wheels with their hashes, as ``RECORD`` has them."""
    for record in sorted(packages.glob("*.dist-info/RECORD")):
        name = record.parent.name.partition("-")[0].lower()
        if name == without.lower().replace("-", "_"):
            continue
        if device == "cpu" and name.startswith(_ONLY_ON_GPU):
            continue
        with record.open(encoding="utf-8", newline="") as file:
            for name, expected in (row[:2] for row in csv.reader(file) if len(row) > 1 and row[1]):
                if device != "cpu" or not name.startswith(_LIBRARIES_ON_GPU):
                    yield name, expected


def _state(path: Path) -> str:
    about = path.stat()
    return f"{about.st_ino} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}"


def _digest(path: Path, expected: str) -> str:
    """Return the hash of a file in the form of ``RECORD``.

    Raises:
        ValueError: If Python does not know the algorithm.
    """
    algorithm = expected.partition("=")[0]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, algorithm).digest()
    return f"{algorithm}={urlsafe_b64encode(digest).rstrip(b'=').decode()}"
