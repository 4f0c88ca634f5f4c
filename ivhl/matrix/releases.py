"""PyTorch releases that the matrix does not have yet, and where they can be installed."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.version import Version

from ivhl.errors import IvhlError, LockError
from ivhl.matrix.locks import lock_state, parse_lock, resolve_cell
from ivhl.matrix.spec import CellSpec
from ivhl.matrix.uv import run_uv

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from ivhl.matrix.spec import Matrix


@dataclass(frozen=True, slots=True)
class Support:
    """Whether a release can be installed on one Python of the matrix.

    Attributes:
        kind: ``locked`` when all of the cell's packages were found, ``unavailable`` when there is
            no distribution for this Python, ``undecided`` when uv could not tell.
        message: Why it is not ``locked``; else empty.
    """

    cell: CellSpec
    kind: Literal["locked", "unavailable", "undecided"]
    message: str = ""


def find_new_releases(root: Path, matrix: Matrix) -> tuple[str, ...]:
    """Return the releases that the registry has and the matrix should know of, oldest first.

    These are all that are newer than its newest, and newer patches of the minors that it has:
    2.14.2 where it has 2.14.1. Minors that it leaves out are left out on purpose. Alphas, release
    candidates and yanked releases are none.

    Raises:
        LockError: If a lock is damaged, the registry cannot be asked, or it lacks a release that
            the matrix has.
    """
    newest_of: dict[tuple[int, int], str] = {}
    for release in matrix.releases("extended"):
        version = Version(release)
        newest_of[version.major, version.minor] = release
    newest = matrix.releases("extended")[-1]
    found: set[str] = set()
    for (major, minor), release in newest_of.items():
        more = "" if release == newest else f",=={major}.{minor}.*"
        found.update(_newer(root, matrix, release, more))
    return tuple(sorted(found, key=Version))


def _newer(root: Path, matrix: Matrix, release: str, more: str) -> Iterator[str]:
    """Yield what is newer than the release, from the newest downwards.

    The release itself always answers, so an answer of uv that there is none is never read: it
    says the same when the network is down.
    """
    below = ""
    # It need not be there for every Python of the matrix.
    has = [p for p in matrix.pythons if _state(root, p, release) != "unavailable"]
    python = has[-1] if has else matrix.pythons[-1]
    while (version := _highest(python, f"torch>={release}{more}{below}")) != release:
        yield version
        below = f",<{version}"


def _state(root: Path, python: str, release: str) -> str:
    return lock_state(root, CellSpec(python, release)).kind


def _highest(python: str, requirement: str) -> str:
    with tempfile.TemporaryDirectory(prefix="ivhl-releases-") as folder:
        asked = Path(folder, "asked.in")
        asked.write_text(requirement + "\n", encoding="utf-8")
        said = run_uv(
            [
                *("pip", "compile", asked.name, "--quiet", "--no-deps", "--no-header"),
                *("--no-annotate", "--prerelease", "disallow", "--only-binary", ":all:"),
                # One that is named keeps uv from running every interpreter that it finds.
                *("--python", sys.executable, "--python-version", python.removesuffix("t")),
                # For any platform: where a release can be installed is told later.
                "--universal",
            ],
            cwd=Path(folder),
        )
    told = " ".join(line.strip() for line in said.stderr.splitlines() if line.strip())
    hint = "see whether the registry and uv's index settings are as they should be"
    if said.returncode:
        raise LockError(f"uv gives no answer for {requirement}: {told}", hint=hint)
    # Index settings of the person at the keyboard are repeated as options.
    lines = [line for line in said.stdout.splitlines() if not line.startswith("-")]
    try:
        (pin,) = parse_lock("\n".join(lines))
    except ValueError as error:
        raise LockError(
            f"uv answers {requirement} with {said.stdout.strip()!r}: {error}", hint=hint
        ) from error
    return pin.version


def support_of(root: Path, matrix: Matrix, release: str, today: dt.date) -> tuple[Support, ...]:
    """Return where a release can be installed: a lock is resolved for each Python, none is written.

    Args:
        root: Of the project.
        matrix: Whose Pythons, platform and other packages are taken.
        release: Need not be in the matrix.
        today: Packages of later days do not exist; instead of ``exclude-newer``.
    """
    return tuple(_support(root, matrix, cell, today) for cell in matrix.cells(releases=[release]))


def _support(root: Path, matrix: Matrix, cell: CellSpec, today: dt.date) -> Support:
    try:
        kind, message = resolve_cell(root, matrix, cell, today)
    except IvhlError as error:
        # One Python that cannot be judged must not hide the others.
        return Support(cell, "undecided", str(error))
    return Support(cell, kind, message)
