"""What git knows about the project: commits, and files as they were at other commits."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ivhl.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_LOCKS = "envs/locks"
# Runs change the results themselves, and nothing that is measured depends on them.
_CODE = ("--", ".", ":(exclude)results")


def find_commit(root: Path, name: str) -> str:
    """Return the full hash of a commit.

    Raises:
        SpecError: If this is no git repository, or it has no such commit.
    """
    try:
        return (
            _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").decode().strip()
        )
    except SpecError as error:
        raise SpecError(
            f"git knows no commit {name!r} in {root}",
            hint="name one that is here (git log), or fetch it; a shallow clone lacks most: "
            "git fetch --unshallow",
        ) from error


def commits_there(root: Path, hashes: Iterable[str]) -> frozenset[str]:
    """Return those of the full hashes that are commits of this repository.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    asked = sorted(set(hashes))
    lines = _git(root, "cat-file", "--batch-check", input_="".join(f"{h}\n" for h in asked))
    answers = lines.decode().splitlines()
    return frozenset(
        commit
        for commit, answer in zip(asked, answers, strict=True)
        if answer.split()[:2] == [commit, "commit"]
    )


def commits_of_same_code(root: Path, commit: str, others: Iterable[str]) -> frozenset[str]:
    """Return the commit and those others that hold the same files, ``results/`` apart.

    A commit that only adds records measures nothing new: what was measured at its parent answers
    for it.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    same = {commit}
    for other in commits_there(root, set(others) - same):
        done = _run(root, "diff", "--quiet", other, commit, *_CODE)
        if done.returncode == 0:
            same.add(other)
    return frozenset(same)


def files_at(root: Path, commit: str, folder: str, ending: str) -> dict[str, bytes]:
    """Return the files below a folder as they were at a commit, by path.

    Args:
        root: The project.
        commit: Full hash.
        folder: Relative to the project; one that was not there then holds no files.
        ending: How the names end.

    Raises:
        SpecError: If git is missing, or it has no such commit.
    """
    listing = _git(root, "ls-tree", "-r", "-z", commit, "--", f"{folder}/").decode()
    blobs: dict[str, str] = {}
    for entry in filter(None, listing.split("\0")):
        about, _, path = entry.partition("\t")
        _, kind, blob = about.split()
        if kind == "blob" and path.endswith(ending):
            blobs[path] = blob
    contents = _contents(root, blobs.values())
    return {path: contents[blob] for path, blob in sorted(blobs.items())}


def lock_digests(root: Path, cells: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the sha256 of every version of the locks of some cells that git has.

    A statement that a cell is unavailable counts as its lock: records of such a cell name it.

    Args:
        root: The project.
        cells: Ids of cells; one that never had a lock has no digests.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    names = {f"{cell}{end}": cell for cell in cells for end in (".txt", ".unavailable.txt")}
    # Of every commit, not of a simplified history: a merge may have dropped a lock that was used.
    asked = ("--full-history", "--objects", "--all", "HEAD", "--", _LOCKS)
    listed = _git(root, "rev-list", *asked).decode()
    blobs: dict[str, str] = {}
    for line in listed.splitlines():
        blob, _, path = line.partition(" ")
        if cell := names.get(PurePosixPath(path).name):
            blobs[blob] = cell
    found: dict[str, set[str]] = {cell: set() for cell in names.values()}
    for blob, text in _contents(root, blobs).items():
        found[blobs[blob]].add(hashlib.sha256(text).hexdigest())
    return {cell: frozenset(digests) for cell, digests in found.items()}


def commit_time_ms(root: Path, commit: str) -> int:
    """Return when a commit was written, in milliseconds since 1970, as asv wants it.

    Raises:
        SpecError: If there is no such commit.
    """
    return int(_git(root, "show", "-s", "--format=%at", commit).decode()) * 1000


def _contents(root: Path, blobs: Iterable[str]) -> dict[str, bytes]:
    asked = list(dict.fromkeys(blobs))
    data = _git(root, "cat-file", "--batch", input_="".join(f"{blob}\n" for blob in asked))
    found: dict[str, bytes] = {}
    position = 0
    for blob in asked:
        end = data.index(b"\n", position)
        size = int(data[position:end].split()[2])
        found[blob] = data[end + 1 : end + 1 + size]
        position = end + 1 + size + 1
    return found


def _git(root: Path, *arguments: str, input_: str = "") -> bytes:
    done = _run(root, *arguments, input_=input_)
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip()
        raise SpecError(
            f"git {arguments[0]} failed in {root}: {told}".rstrip(": "),
            hint="run this in a git clone of the project",
        )
    return done.stdout


def _run(root: Path, *arguments: str, input_: str = "") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=root, input=input_.encode(), capture_output=True, check=False
        )
    except OSError as error:
        raise SpecError(f"git cannot be run: {error}", hint="install git") from error
