"""The positions of a search: releases or commits between two ends, and the Python."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from ivhl.bench.bisection.question import Position
from ivhl.errors import InterpreterError, SpecError, UnknownNameError
from ivhl.git import commit_titles, commits_of_range, find_commit, leads_to
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec, newest_of
from ivhl.tracker.support.compat import python_key, release_key

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import Matrix, Tier

_SERIES = re.compile(r"(\d+)\.(\d{1,4})\.")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?\w*")


def newest_python(
    root: Path, matrix: Matrix, releases: tuple[str, str], refused: Container[str]
) -> str:
    """Return the newest Python that is here and has both releases; the newest at all if none is.

    Args:
        root: Root of the project.
        matrix: Its matrix.
        releases: The ends.
        refused: Pythons on which one of them refuses to compile.
    """
    for python in sorted(matrix.pythons, key=python_key, reverse=True):
        if python in refused:
            continue
        cells = [CellSpec(python, release) for release in releases]
        if not python.endswith("t") and all(
            lock_state(root, cell).kind == "locked" for cell in cells
        ):
            with suppress(InterpreterError):
                find_interpreter(root, python, install=False)
                return python
    return matrix.newest_python


def positions_between(
    root: Path,
    matrix: Matrix,
    ends: tuple[str, str],
    tier: Tier,
    *,
    torch: str | None,
    commit: str | None,
) -> tuple[Literal["commit", "torch"], tuple[Position, ...]]:
    """Return what lies between two releases, or two commits, both included.

    Args:
        root: Root of the project.
        matrix: Its matrix.
        ends: As they were given, the older one first.
        tier: Releases between two ends.
        torch: PyTorch release in which commits are measured; ``None`` for the newest default one.
        commit: Commit at which releases are measured; ``None`` for HEAD.

    Raises:
        SpecError: If the ends are neither, the same, or in the wrong order; or if what is searched
            is also given as one.
    """
    along: Literal["commit", "torch"] = "torch" if _are_releases(root, matrix, ends) else "commit"
    known = matrix.releases("extended")
    word, words = ("release", "releases") if along == "torch" else ("commit", "commits")
    if along == "commit":
        for name, beside in (ends, ends[::-1]):
            if newest_of(name, known) in known:
                raise SpecError(
                    f"{name} is a PyTorch release and {beside} is none",
                    hint="name two commits, or two releases",
                )
    if given := torch if along == "torch" else commit:
        raise SpecError(
            f"--{along} {given}: not between two {words}, each of which is measured",
            hint=f"leave --{along} out, or name two {'commits' if along == 'torch' else 'releases'}",
        )
    if along == "torch":
        first, last = (_release(matrix, name) for name in ends)
    else:
        first, last = (find_commit(root, name) for name in ends)
    if first == last:
        raise SpecError(
            f"{ends[0]} and {ends[1]} are the same {word}",
            hint=f"name two of {', '.join(known)}" if along == "torch" else "e.g. v1.0 main",
        )
    if along == "torch":
        return along, _releases_between(
            matrix, first, last, tier, find_commit(root, commit or "HEAD")
        )
    release = _release(matrix, torch or matrix.releases()[-1])
    return along, _commits_between(root, first, last, ends, release)


def _release(matrix: Matrix, text: str) -> str:
    found = matrix.release(text)
    if found not in matrix.every_release:
        raise UnknownNameError("PyTorch release", text, matrix.every_release)
    return found


def _releases_between(
    matrix: Matrix, first: str, last: str, tier: Tier, commit: str
) -> tuple[Position, ...]:
    if release_key(first) > release_key(last):
        raise SpecError(
            f"BEFORE must be older than AFTER (got {first} and {last})",
            hint=f"ivhl bisect {last} {first}; releases: {', '.join(matrix.releases('extended'))}",
        )
    releases = sorted({first, last, *matrix.releases(tier)}, key=release_key)
    between = releases[releases.index(first) : releases.index(last) + 1]
    return tuple(Position(one, f"PyTorch {one}", commit, one) for one in between)


def _commits_between(
    root: Path, first: str, last: str, ends: tuple[str, str], release: str
) -> tuple[Position, ...]:
    if not leads_to(root, first, last):
        raise SpecError(
            f"no commit leads from {ends[0]} to {ends[1]}",
            hint="BEFORE must be an ancestor of AFTER: is the order right? Of two branches, search "
            f"from where they part: git merge-base {ends[0]} {ends[1]}",
        )
    line = (first, *reversed(commits_of_range(root, f"{first}..{last}")))
    titles = commit_titles(root, line)
    return tuple(Position(one, titles[one], one, release) for one in line)


def lacking_releases(releases: Sequence[str]) -> tuple[str, ...]:
    """Return the series between the first and last release of which none is given.

    Args:
        releases: Releases of one major version, oldest first, such as ``2.6.0``; nightlies have no
            series.
    """
    found = [match.groups() for one in releases if (match := _SERIES.match(one))]
    if len({major for major, _ in found}) != 1:
        return ()
    (major, _), minors = found[0], {int(minor) for _, minor in found}
    return tuple(f"{major}.{n}" for n in range(min(minors), max(minors)) if n not in minors)


def _are_releases(root: Path, matrix: Matrix, names: tuple[str, str]) -> bool:
    """Return whether both names are releases: of the matrix, or versions that git does not know."""
    known = matrix.releases("extended")
    if all(newest_of(name, known) in known for name in names):
        return True
    with suppress(SpecError):
        return not all(find_commit(root, name) for name in names)
    return all(_VERSION.fullmatch(name) for name in names)
