"""Find PyTorch releases that the matrix lacks, and the Pythons that they can be installed on."""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from packaging.version import Version

from ivhl.errors import IvhlError, LockError
from ivhl.matrix.locks import lock_state, parse_lock, resolve_cell
from ivhl.matrix.uv import run_uv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.matrix.spec import CellSpec, Matrix

_FIRST_WHEEL: Final = dt.date(2017, 8, 4)  # of torch on PyPI, 0.1.2


@dataclass(frozen=True, slots=True)
class WheelSupport:
    """Whether a release can be installed on one Python of the matrix.

    Attributes:
        kind: ``locked`` when all of the cell's packages were found, ``unavailable`` when there is
            no distribution for this Python, ``undecided`` when uv could not tell.
        message: Why it is not ``locked``; empty if it is.
    """

    cell: CellSpec
    kind: Literal["locked", "unavailable", "undecided"]
    message: str = ""


def find_new_releases(root: Path, matrix: Matrix) -> tuple[str, ...]:
    """Return the releases in the registry that the matrix should add, oldest first.

    These are all releases newer than the matrix's newest, and newer patches of its minor versions,
    e.g. 2.14.2 if it has 2.14.1. Older minor versions that the matrix omits are omitted on purpose.
    Alphas, release candidates and yanked releases are excluded.

    Raises:
        LockError: If a lock is damaged, the registry does not answer, or it lacks a release of the
            matrix.
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
    """Yield the releases newer than this one, newest first.

    The requirement always includes the release itself, so uv always finds a version. That matters
    because uv's message for "no version" is the same as when the network is down.
    """
    below = ""
    # A release need not exist for every Python of the matrix.
    cells = matrix.cells(releases=[release])
    has = [cell.python for cell in cells if lock_state(root, cell).kind != "unavailable"]
    python = has[-1] if has else matrix.pythons[-1]
    while (version := highest(python, f"torch>={release}{more}{below}")) != release:
        yield version
        below = f",<{version}"


def last_day_of(python: str, release: str) -> dt.date | None:
    """Return the day before a newer PyTorch release had a wheel for a Python.

    Returns:
        ``None`` if the release is still the newest.

    Raises:
        LockError: If the registry does not answer, or does not tell when files were uploaded.
    """

    def has_newer(day: int) -> bool:
        try:
            newest = highest(python, "torch", dt.date.fromordinal(day))
        except LockError:  # no release of that time has a wheel for this Python
            return False
        return Version(newest) > Version(release)

    today = dt.datetime.now(dt.UTC).date()
    if Version(highest(python, "torch", today)) <= Version(release):
        return None
    days = range(_FIRST_WHEEL.toordinal(), today.toordinal())
    return dt.date.fromordinal(days[bisect_left(days, True, key=has_newer) - 1])  # noqa: FBT003


def highest(python: str, requirement: str, until: dt.date | None = None) -> str:
    """Return the newest version of a requirement that has a wheel for a Python.

    Args:
        python: E.g. ``3.13``.
        requirement: E.g. ``torch>=2.6``.
        until: The last day whose uploads count.

    Raises:
        LockError: If the registry does not answer, or has none.
    """
    with tempfile.TemporaryDirectory(prefix="ivhl-releases-") as folder:
        asked = Path(folder, "asked.in")
        asked.write_text(requirement + "\n", encoding="utf-8")
        answer = run_uv(
            [
                *("pip", "compile", asked.name, "--quiet", "--no-deps", "--no-header"),
                *("--no-annotate", "--prerelease", "disallow", "--only-binary", ":all:"),
                *(("--exclude-newer", str(until)) if until else ()),
                # An explicit --python keeps uv from running every interpreter that it finds.
                *("--python", sys.executable, "--python-version", python.removesuffix("t")),
                # For any platform; support_of checks the platform of the matrix later.
                "--universal",
            ],
            cwd=Path(folder),
        )
    message = " ".join(line.strip() for line in answer.stderr.splitlines() if line.strip())
    hint = "check the registry and uv's index settings"
    if answer.returncode:
        raise LockError(f"uv gives no answer for {requirement}: {message}", hint=hint)
    # uv repeats the user's index settings as options.
    lines = [line for line in answer.stdout.splitlines() if not line.startswith("-")]
    try:
        (pin,) = parse_lock("\n".join(lines))
    except ValueError as error:
        raise LockError(
            f"uv answers {requirement} with {answer.stdout.strip()!r}: {error}", hint=hint
        ) from error
    return pin.version


def support_of(
    root: Path, matrix: Matrix, release: str, today: dt.date
) -> tuple[WheelSupport, ...]:
    """Return for each Python whether a release can be installed; resolves locks, writes none.

    Args:
        root: Root of the project.
        matrix: Gives the Pythons, the platform and the other packages.
        release: Need not be in the matrix.
        today: Replaces ``exclude-newer``: packages published later are ignored.
    """
    found = []
    for cell in matrix.cells(releases=[release]):
        try:
            found.append(WheelSupport(cell, *resolve_cell(root, matrix, cell, today)))
        except IvhlError as error:  # one for one Python must not hide the others
            found.append(WheelSupport(cell, "undecided", str(error)))
    return tuple(found)
