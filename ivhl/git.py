"""Commits of the project, and files as they were at other commits: all calls of git."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ivhl.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class NoRepositoryError(SpecError):
    """A folder is in no git repository: whatever was asked of git is not at fault."""


class RefusedRepositoryError(SpecError):
    """A folder is in a repository that git does not read, since another user owns it."""


class NoCommitError(SpecError):
    """The branch of a repository has no commit yet, so there is nothing to measure or compare."""


_REFUSED = re.compile(r"detected dubious ownership in repository at '(.*)'")
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LOCKS = "envs/locks"
# Without results/: runs change them, and no measurement depends on them.
_CODE = ("--", ".", ":(exclude)results")


def git_version(root: Path) -> str:
    """Return the version of git, as it prints it.

    Raises:
        SpecError: If git is missing.
    """
    return _git(root, "--version").decode(errors="replace").strip()


def top_level(root: Path) -> Path:
    """Return the folder of the working tree that holds the project, which may be a folder in it.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    return Path(_text(root, "rev-parse", "--show-toplevel").rstrip("\n"))


def default_branch(root: Path) -> str:
    """Return the branch whose history is published: the remote's default, ``main``, or the current.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    remote = _output(root, "symbolic-ref", "--short", "-q", "refs/remotes/origin/HEAD").strip()
    for name in (remote.removeprefix("origin/"), "main", "master"):
        if name and _output(root, "rev-parse", "--verify", "-q", f"refs/heads/{name}"):
            return name
    return _output(root, "symbolic-ref", "--short", "-q", "HEAD").strip() or "HEAD"


def is_shallow(root: Path) -> bool:
    """Return whether the repository lacks a part of its history.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    return _git(root, "rev-parse", "--is-shallow-repository").strip() == b"true"


def current_commit(folder: Path) -> str:
    """Return the commit that is checked out in a folder, or 40 zeros without a git repository.

    Raises:
        RefusedRepositoryError: If git does not read the repository.
    """
    return _output(folder, "rev-parse", "--verify", "--quiet", "HEAD").strip() or "0" * 40


def clone_of(root: Path, folder: Path) -> Path:
    """Return a project in a clone of its repository, at the commit that is checked out.

    The clone has no copy of commits: what the repository fetches later is there as well. Only one
    process may use it.

    Args:
        root: Root of the project.
        folder: Where the clone is made, or was before.

    Raises:
        SpecError: If this is not a git repository, or git cannot write there.
    """
    top = Path(_text(root, "rev-parse", "--show-toplevel").strip())
    place = folder / hashlib.sha256(os.fsencode(top)).hexdigest()[:12]
    if not (place / ".git").is_dir():
        begun = place.with_suffix(".part")
        shutil.rmtree(begun, ignore_errors=True)
        _text(root, "clone", "--quiet", "--shared", "--no-checkout", str(top), str(begun))
        begun.rename(place)
    (place / ".git" / "index.lock").unlink(missing_ok=True)  # of a process that was killed
    head = find_commit(root, "HEAD")
    _text(place, "checkout", "--quiet", "--force", "--detach", head)
    return place / root.resolve().relative_to(top.resolve())


def find_commit(root: Path, name: str) -> str:
    """Return the full hash of a commit.

    Raises:
        SpecError: If this is not a git repository, or has no such commit.
    """
    try:
        return _text(
            root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        ).strip()
    except (NoRepositoryError, RefusedRepositoryError, NoCommitError):
        raise
    except SpecError as error:
        raise SpecError(
            f"git knows no commit {name!r} in {root}",
            hint="run this in a git clone, and name a commit that is in it (git log), or fetch it. "
            "A shallow clone lacks most commits: git fetch --unshallow",
        ) from error


def commits_of_range(root: Path, text: str) -> tuple[str, ...]:
    """Return the commits of ``A..B`` on B's first-parent line, newest first.

    Args:
        root: Root of the project.
        text: ``A..B`` as git reads it, without A itself; or ``tags``, those before HEAD.

    Raises:
        SpecError: If it is neither, git does not know an end, or there is no commit in it.
    """
    hint = "write A..B, e.g. v1.0..main (A itself is not in it: v1.0^..main), or tags"
    first, dots, last = text.partition("..")
    if text == "tags":
        listed = _text(root, "tag", "--merged", "HEAD", "--sort=-creatordate").split()
        found = tuple(dict.fromkeys(find_commit(root, tag) for tag in listed))
    elif dots and not last.startswith("."):
        ends = find_commit(root, first or "HEAD"), find_commit(root, last or "HEAD")
        listed = _text(root, "rev-list", "--first-parent", f"{ends[0]}..{ends[1]}").split()
        found = tuple(listed)
    else:
        raise SpecError(f"--commit: must be A..B or tags (got {text!r})", hint=hint)
    if not found:
        raise SpecError(f"--commit: no commit in {text}", hint=hint)
    return found


def leads_to(root: Path, one: str, other: str) -> bool:
    """Return whether a commit is an ancestor of another one.

    Raises:
        SpecError: If git is missing.
    """
    ends = _full(one), _full(other)
    return not _run(root, "merge-base", "--is-ancestor", *ends).returncode


def commit_titles(root: Path, commits: Sequence[str]) -> dict[str, str]:
    """Return the short hash, the day and the subject of commits, by full hash.

    Raises:
        SpecError: If git is missing, or lacks one.
    """
    asked = ("log", "--no-walk=unsorted", "--stdin", "--format=%H %cs  %s")
    lines = _text(root, *asked, input_=_lines(map(_full, commits))).splitlines()
    found = (line.partition(" ") for line in lines)
    return {commit: f"{commit[:8]}  {about}" for commit, _, about in found}


def commits_there(root: Path, hashes: Iterable[str]) -> frozenset[str]:
    """Return the full hashes that are commits of this repository.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    # Records hold any text, also several lines.
    asked = sorted(filter(_HASH.fullmatch, set(hashes)))
    answers = _text(root, "cat-file", "--batch-check", input_=_lines(asked)).splitlines()
    pairs = zip(asked, answers, strict=True)
    return frozenset(commit for commit, text in pairs if text.split()[:2] == [commit, "commit"])


def commits_of_same_code(root: Path, commit: str, others: Iterable[str]) -> frozenset[str]:
    """Return the commit and those others with the same files, except in ``results/``.

    A commit that only adds records needs no new measurement: the records of its parent are valid.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    there = commits_there(root, {commit, *others})
    folder = _text(root, "rev-parse", "--show-prefix").rstrip("\n").rstrip("/")
    trees = zip(there, _objects(root, [f"{one}:{folder}" for one in there]), strict=True)
    code = {one: _without_results(tree, len(one) // 2) for one, tree in trees}
    mine = code.get(commit)
    return frozenset({commit, *(one for one in there if code[one] == mine is not None)})


def _without_results(tree: bytes | None, hash_bytes: int) -> bytes | None:
    """Return a tree as git stores it, without its entry ``results``."""
    position = 0
    while tree is not None and position < len(tree):
        end = tree.find(b"\0", position)
        if end < 0:  # a file of this name
            break
        after = end + 1 + hash_bytes
        if tree[position:end].endswith(b" results"):
            return tree[:position] + tree[after:]
        position = after
    return tree


def files_at(root: Path, commit: str, folder: str, ending: str) -> dict[str, bytes]:
    """Return the files below a folder as they were at a commit, by path.

    Args:
        root: Root of the project.
        commit: Full hash.
        folder: Relative to the root; a folder that did not exist at the commit has no files.
        ending: End of the file names.

    Raises:
        SpecError: If git is missing, or it has no such commit.
    """
    blobs: dict[str, str] = {}
    for entry in _names(_text(root, "ls-tree", "-r", "-z", _full(commit), "--", f"{folder}/")):
        about, _, path = entry.partition("\t")
        _, kind, blob = about.split()
        if kind == "blob" and path.endswith(ending):
            blobs[path] = blob
    contents = _contents(root, blobs.values())
    return {path: contents[blob] for path, blob in sorted(blobs.items())}


def lock_texts(root: Path, cells: Iterable[str]) -> Mapping[str, Mapping[str, bytes]]:
    """Return every version in git of the locks of some cells, by its sha256.

    A statement that a cell is unavailable counts as its lock, since records of such a cell name it.

    Args:
        root: Root of the project.
        cells: Ids of cells; a cell that never had a lock has no texts.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    names = {f"{cell}{end}": cell for cell in cells for end in (".txt", ".unavailable.txt")}
    # --full-history: a merge may have dropped a lock that was used.
    asked = ("--full-history", "--objects", "--all", "HEAD", "--", _LOCKS)
    blobs: dict[str, str] = {}
    for line in _text(root, "rev-list", *asked).splitlines():
        blob, _, path = line.partition(" ")
        if cell := names.get(PurePosixPath(path).name):
            blobs[blob] = cell
    found: dict[str, dict[str, bytes]] = {cell: {} for cell in names.values()}
    for blob, text in _contents(root, blobs).items():
        found[blobs[blob]][hashlib.sha256(text).hexdigest()] = text
    return found


def commit_order(root: Path) -> tuple[str, ...]:
    """Return the commits that lead to HEAD, oldest first.

    Empty where git or the repository is missing: the views then order by time instead.
    """
    return tuple(_output(root, "rev-list", "--topo-order", "--reverse", "HEAD").split())


def published_branches(root: Path, configured: Sequence[str]) -> list[str]:
    """Return the branches that are there, and the current one if HEAD is on none of them."""
    named = filter(None, configured)
    present = [name for name in named if _output(root, "rev-parse", "--verify", "-q", name)]
    head = _output(root, "rev-parse", "HEAD").strip()
    if any(head in _output(root, "rev-list", "--first-parent", name).split() for name in present):
        return present
    current = _output(root, "symbolic-ref", "--short", "-q", "HEAD").strip()
    # asv splits names as a shell does: one with a quotation mark or a space stops it.
    return [*present, current if re.fullmatch(r"[\w./@+-]+", current, re.ASCII) else "HEAD"]


def changed_files(root: Path) -> list[str]:
    """Return which tracked files differ from HEAD, ``results/`` apart, as ``git status`` lists them.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    listed = _git(root, "status", "--porcelain", "--untracked-files=no", *_CODE)
    return listed.decode(errors="replace").splitlines()


def is_uncommitted(folder: Path, out: Path) -> bool | None:
    """Return whether a working tree differs from its commit; ``None`` without git.

    An untracked file counts if it is code.

    Args:
        folder: Any folder of the working tree.
        out: Folder of the records, which does not count.
    """
    try:
        top = top_level(folder)
        beside = [f":(exclude){out}"] if out.is_relative_to(top) and out != top else []
        tree = ("--untracked-files=all", "--", ":(top)", *beside)
        changed = _text(folder, "status", "--porcelain", *tree).splitlines()
    except RefusedRepositoryError:
        raise
    except SpecError:
        return None
    return any(not line.startswith("??") or line.endswith(".py") for line in changed)


def uncommitted_files(root: Path, folder: str) -> list[str]:
    """Return the files below a folder that differ from HEAD or are untracked, from the root.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    changed = _text(root, "diff", "--name-only", "--relative", "-z", "HEAD", "--", folder)
    return _names(changed) + untracked_files(root, folder)


def tracked_files(root: Path, names: Iterable[str]) -> list[str]:
    """Return the files and links of these names, or in them, that git tracks; empty without git."""
    return _names(_output(root, "ls-files", "-z", "--cached", "--", *names))


def untracked_files(root: Path, folder: str) -> list[str]:
    """Return the files below a folder that git neither tracks nor ignores; empty without git.

    Not the bytecode that Python leaves when it imports them: not every project ignores it.
    """
    listed = _output(root, "ls-files", "-z", "--others", "--exclude-standard", "--", folder)
    return [name for name in _names(listed) if not name.endswith(".pyc")]


def copy_tree(root: Path, target: Path) -> Path:
    """Copy the working tree without what git ignores; return the project's folder in the copy.

    Args:
        root: Root of the project, which may be a folder of the repository.
        target: New folder for the whole repository.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    top = top_level(root)
    listed = _text(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in dict.fromkeys(_names(listed)):
        file, copy = top / name, target / name
        if not file.is_file():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():  # it may lead to a file of any size
            copy.symlink_to(file.resolve())
        else:
            shutil.copy2(file, copy)
    return target / root.resolve().relative_to(top)


def clone_at(root: Path, commit: str, target: Path) -> Path:
    """Clone the repository, put the clone at a commit, and return the project's folder in it.

    Objects are shared, so a commit that is on no branch can be had, too.

    Args:
        root: Root of the project, which may be a folder of the repository.
        commit: Full hash.
        target: New folder for the whole repository.

    Raises:
        SpecError: If git is missing, or it lacks the commit.
    """
    top, commit = top_level(root), _full(commit)
    _git(root, "clone", "--quiet", "--no-checkout", "--shared", str(top), str(target))
    _git(target, "checkout", "--quiet", "--detach", commit)
    return target / root.resolve().relative_to(top.resolve())


def texts_of(root: Path, path: str) -> tuple[bytes, ...]:
    """Return every version in git of a file, newest first.

    Args:
        root: Root of the project.
        path: Relative to the root.

    Raises:
        SpecError: If git is missing, or this is no repository.
    """
    inside = _text(root, "rev-parse", "--show-prefix").rstrip("\n")
    commits = _text(root, "log", "--all", "--format=%H", "HEAD", "--", path).split()
    found = _objects(root, [f"{commit}:{inside}{path}" for commit in commits])
    return tuple(dict.fromkeys(text for text in found if text is not None))


def archive(root: Path, commit: str, prefix: str) -> bytes:
    """Return the files of a commit as a tar archive, in a folder ``prefix``.

    Raises:
        SpecError: If git is missing, or it has no such commit.
    """
    try:
        return _git(root, "archive", "--format=tar", f"--prefix={prefix}/", _full(commit))
    except SpecError as error:
        raise SpecError(
            f"git has no files of commit {commit}: {error}",
            hint="name a commit that is here with --commit",
        ) from error


def commit_time_ms(root: Path, commit: str) -> int:
    """Return the author time of a commit in milliseconds since 1970, as asv needs it.

    Raises:
        SpecError: If the commit does not exist.
    """
    return int(_text(root, "show", "-s", "--format=%at", _full(commit))) * 1000


def _full(commit: str) -> str:
    """Return a full hash: nothing else that a record holds reaches git, which obeys expressions.

    Raises:
        SpecError: If it is a name, an option or an expression, as ``HEAD~3``.
    """
    if not _HASH.fullmatch(commit):
        raise SpecError(
            f"a commit must be a full hash, 40 or 64 hex digits (got {commit[:100]!a})",
            hint="correct the record or the name that has it",
        )
    return commit


def _contents(root: Path, blobs: Iterable[str]) -> dict[str, bytes]:
    asked = list(dict.fromkeys(blobs))
    found = dict(zip(asked, _objects(root, asked), strict=True))
    if missing := [blob for blob, content in found.items() if content is None]:
        raise SpecError(
            f"git in {root} lacks the content of {missing[0]}",
            hint="fetch it: git fetch --refetch; a partial clone needs its remote",
        )
    return found  # type: ignore[return-value]


def _objects(root: Path, names: Sequence[str]) -> Iterator[bytes | None]:
    """Yield the content of each object, ``None`` where git has none."""
    answers = io.BytesIO(_git(root, "cat-file", "--batch", input_=_lines(names)))
    for _ in names:
        head = answers.readline().rstrip()
        if head.endswith(b" missing"):
            yield None
        else:
            yield answers.read(int(head.split()[-1]))
            answers.read(1)


def _output(root: Path, *arguments: str) -> str:
    """Return the output of git, or nothing where it fails for another reason than its owner.

    Raises:
        RefusedRepositoryError: If git does not read the repository.
    """
    try:
        return _text(root, *arguments)
    except RefusedRepositoryError:
        raise
    except SpecError:
        return ""


def _names(listed: str) -> list[str]:
    """Return what git has listed with ``-z``."""
    return [*filter(None, listed.split("\0"))]


def _lines(names: Iterable[str]) -> str:
    return "".join(f"{name}\n" for name in names)


def _text(root: Path, *arguments: str, input_: str = "") -> str:
    """Return the output of git; names of branches, tags and files need not be UTF-8."""
    return os.fsdecode(_git(root, *arguments, input_=input_))


def _git(root: Path, *arguments: str, input_: str = "") -> bytes:
    done = _run(root, *arguments, input_=input_)
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()
        if "not a git repository" in message:
            raise NoRepositoryError(
                f"{root}: is in no git repository",
                hint="run this in a git clone of the project, or make it a repository: git init, "
                "git add, git commit",
            )
        if refused := _REFUSED.search(message):
            raise RefusedRepositoryError(
                f"{root}: git says: {refused[0]}",
                hint="another user owns the repository, as in containers. If you trust it: "
                f"git config --global --add safe.directory {shlex.quote(refused[1])}",
            )
        if _run(root, "rev-parse", "--verify", "--quiet", "HEAD").returncode:
            raise NoCommitError(
                f"{root}: the branch of this repository has no commit yet",
                hint="commit the project first: git add --all, then git commit",
            )
        raise SpecError(
            f"git {arguments[0]} failed in {root}: {message}".rstrip(": "),
            hint="run this in a git clone of the project",
        )
    return done.stdout


def _run(root: Path, *arguments: str, input_: str = "") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=root,
            input=os.fsencode(input_),
            capture_output=True,
            check=False,
            env=os.environ | {"LC_ALL": "C"},  # some messages are looked at
        )
    except ValueError as error:  # a null byte, which no argument can have
        raise SpecError(
            f"git {arguments[0]}: {error}: {arguments[1:]}", hint="correct the name"
        ) from error
    except OSError as error:
        raise SpecError(f"git cannot be run: {error}", hint="install git") from error
