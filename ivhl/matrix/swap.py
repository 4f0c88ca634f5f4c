"""A lock in which one package is swapped for another version of it, and nothing else."""

from __future__ import annotations

import hashlib
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ivhl.errors import LockError, SpecError, UnknownNameError
from ivhl.matrix.locks import ASKED, ASKED_FILE, parse_lock, resolve_requirements
from ivhl.matrix.spec import split_pin

if TYPE_CHECKING:
    from ivhl.matrix.locks import LockState
    from ivhl.matrix.spec import Matrix

# uv's notes on where a pin comes from name its file here.
_OVERRIDE = re.compile(r"^    #(?: via|  ) --override .*\n", re.MULTILINE)


class Swap(NamedTuple):
    """A lock with one package swapped.

    Attributes:
        before: The pin of the package in the lock of the cell, e.g. ``triton==3.2.0``.
        after: That in ``state``.
        text: The whole lock.
    """

    before: str
    after: str
    text: bytes
    state: LockState


def swap_package(root: Path, matrix: Matrix, state: LockState, pin: str) -> Swap:
    """Return the lock of a cell with one package swapped, also against what torch requires.

    Args:
        root: Root of the project.
        matrix: The matrix that made the lock.
        state: The lock.
        pin: The package with its other version, e.g. ``triton==3.1.0``.

    Raises:
        SpecError: If the pin is none, or its package is not in the lock or already has this version.
        LockError: If the cell has no lock, the package has no such version or no wheel for the cell,
            or other packages would change with it.
    """
    name, version = _to_swap(state, pin)
    known = state.packages
    # Whoever the matrix names is asked for as before; versions are preferred as they are.
    asked = [f"{p.name}=={p.version}" for p in state.pins if p.name != name]
    asked.append(f"{name}=={version}")
    with tempfile.TemporaryDirectory(prefix="ivhl-swap-") as folder:
        overrides = Path(folder, "overrides.txt")
        overrides.write_text(f"{name}=={version}\n", encoding="utf-8")
        messages, text = resolve_requirements(
            root, matrix, state.cell.python, asked, known, "--override", str(overrides)
        )
    if text is None:
        raise LockError(
            f"{state.cell.id}: cannot have {name}=={version}: {' '.join(messages.split())}",
            hint="name a version that has a wheel for this Python and platform",
        )
    found = parse_lock(_OVERRIDE.sub("", text).replace(f"-r {ASKED_FILE}", ASKED))
    pins = {one.name: one for one in found}
    same = {one.name: one for one in state.pins}
    moved = sorted(
        other
        for other in pins.keys() | same.keys()
        if other != name
        and (
            other not in pins
            or other not in same
            or pins[other].version != same[other].version
            or not set(pins[other].hashes) & set(same[other].hashes)
        )
    )
    if moved:
        raise LockError(
            f"{state.cell.id}: {name}=={version} is not the only difference: {', '.join(moved)} "
            "would change, too",
            hint="an effect could not be told apart from theirs; name another version",
        )
    old = state.path.read_text(encoding="utf-8")
    note = f"# Swapped for a comparison: {name}=={known[name]} -> {name}=={version}\n"
    hashes = " \\\n".join(f"    --hash={one}" for one in pins[name].hashes)
    # All other lines stay: the same files of all other packages are installed.
    block = re.compile(rf"^{re.escape(name)}==.*\n(?:    --hash=.*\n)+", re.MULTILINE)
    swapped = block.sub(lambda _: f"{name}=={version} \\\n{hashes}\n", old)
    data = (note + swapped).encode()
    sha256 = hashlib.sha256(data).hexdigest()
    after = replace(state, sha256=sha256, pins=parse_lock(data.decode()))
    return Swap(f"{name}=={known[name]}", f"{name}=={version}", data, after)


def _to_swap(state: LockState, pin: str) -> tuple[str, str]:
    """Return name and version of a pin that the lock can be made with; raises otherwise."""
    try:
        name, version = split_pin(pin)
    except ValueError as error:
        raise SpecError(
            f"--swap: must be a package with its other version (got {pin!r})",
            hint="e.g. --swap triton==3.1.0",
        ) from error
    if state.kind != "locked":
        raise LockError(
            f"{state.cell.id}: has no lock in which {name} could be swapped",
            hint=f"ivhl lock --torch {state.cell.torch}",
        )
    known = state.packages
    if name not in known:
        raise UnknownNameError(f"package of the lock of {state.cell.id}", name, known)
    if name == "torch":
        raise SpecError(
            "--swap: another torch is another cell", hint="ivhl attribute CELL CELL: both cells"
        )
    if known[name] == version:
        raise SpecError(
            f"--swap: {state.cell.id} has {name} {version} already", hint="name another version"
        )
    return name, version
