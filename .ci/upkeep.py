#!/usr/bin/env python3
"""Propose new releases of PyTorch, Python and libraries as pull requests.

    .ci/upkeep.py look FOLDER < DECLINED    writes NAME.patch and NAME.md there for each change
    .ci/upkeep.py open FOLDER               brings each onto a branch upkeep/NAME with a pull request

``look`` runs foreign code, so it needs a checkout and no token. DECLINED has the titles of closed
pull requests, one a line. ``open`` runs nothing of what it reads: only plain files count, with a
known name and title, whose patch changes the files of a change and no others.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
BOT: Final = "41898282+github-actions[bot]@users.noreply.github.com"
# A hosted runner ends a job after 6 hours, with its upload.
_LONGEST_S: Final = 5.25 * 3600
_WORKLOAD: Final = "ops.field_superposition"
_NAME: Final = re.compile(r"(torch|python)-[0-9.]{3,20}|library-[a-z0-9-]{1,60}|ci-locks")
_TITLE: Final = re.compile(
    r"Add (PyTorch|Python) [0-9.]{3,20}|Observe [a-z0-9-]{1,60} [a-z0-9.+]{1,40}"
    r"|Refresh the locks of CI"
)
# A change may have these files. No file of them runs or is a page: `open` has a token that writes.
_PATHS: Final = (
    r"envs/matrix\.toml",
    r"envs/locks/(py[0-9.t]+-torch[0-9.]+(\.unavailable)?\.txt|SHA256SUMS)",
    r"envs/ci/[a-z]+\.txt",
    r"observatory/records/[a-z0-9-]+\.jsonl",
    r"observatory/locks/[0-9a-f]{16}\.txt",
)
_NEXT: Final = (
    "Next: choose the tier (docs/matrix.md), add a `[[forced]]` row for each difference that "
    "`ivhl check locks` names below, and run `python -m studies.tables`."
)
_MOST = 20
_LARGEST = 64 << 20
# GitHub keeps 65,536 characters of a text.
_LARGEST_TEXT = 60_000


@dataclass(frozen=True, slots=True)
class Change:
    """A pull request to make.

    Attributes:
        name: Name of its branch, after ``upkeep/``.
        make: Changes a tree; what an earlier night has done there stays.
        describe: Returns the text of the pull request for a changed tree.
    """

    name: str
    title: str
    make: Callable[[Tree], None]
    describe: Callable[[Tree], str]


@dataclass(frozen=True, slots=True)
class Tree:
    """A checkout of its own, in which a change is made.

    Attributes:
        ends: Time of the monotonic clock at which commands are stopped.
    """

    root: Path
    ends: float

    def run(self, *words: str, **variables: str) -> str:
        """Run a command; return its output as a block of Markdown, which no line of it can end.

        The text has each failure: its reader decides.
        """
        left = max(self.ends - time.monotonic(), 1)
        command = [sys.executable if words[0] == "python" else words[0], *words[1:]]
        # Ctrl-C, after which `ivhl observe` keeps what it found.
        stopped = ["timeout", "--signal=INT", "--kill-after=60", f"{left:.0f}", *command]
        done = subprocess.run(
            stopped,
            cwd=self.root,
            env=os.environ | {"COLUMNS": "160"} | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        lines = [f"$ {shlex.join(words)}", *done.stdout.splitlines()]
        lines += [f"exit code {done.returncode}"] if done.returncode else []
        sys.stderr.write("\n".join([*lines, ""]))
        return "".join(f"    {line}\n" for line in lines) + "\n"

    def ivhl(self, *words: str, **variables: str) -> str:
        """Run ivhl as it is in this tree."""
        return self.run("python", "-m", "ivhl", *words, **variables)


def git(root: Path, *words: str, data: bytes | None = None) -> str:
    """Run git and return what it prints.

    Raises:
        CalledProcessError: If it fails.
    """
    command = ["git", "-C", str(root), *words]
    done = subprocess.run(command, input=data, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode(errors="replace").strip()


def has_commit(root: Path, name: str) -> bool:
    """Return whether the repository has a commit of that name."""
    command = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0


def is_of_a_person(root: Path, main: str, branch: str) -> bool:
    """Return whether somebody but this script committed to the branch."""
    return bool(set(git(root, "log", "--format=%ce", f"{main}..{branch}").split()) - {BOT})


def difference(root: Path, *what: str) -> bytes:
    """Return the difference of two commits, or of one and the index, as a patch."""
    command = ["git", "-C", str(root), "diff", "--binary", *what]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def is_on(branch: str, root: Path, main: str) -> bool:
    """Return whether a branch has what is staged on main, wherever in a file that is."""
    base = git(root, "merge-base", main, branch)
    both = (difference(root, base, branch), difference(root, "--cached", main))
    first, second = (git(root, "patch-id", "--stable", data=patch).split(" ")[0] for patch in both)
    return first == second


def link_locks(root: Path) -> None:
    """Let ``ivhl/script/envs`` link to each lock, and to nothing else."""
    links, locks = root / "ivhl" / "script" / "envs" / "locks", root / "envs" / "locks"
    there = {path.name for path in locks.iterdir()}
    for link in links.iterdir():
        if link.name not in there:
            link.unlink()
    for name in there - {link.name for link in links.iterdir()}:
        (links / name).symlink_to(f"../../../../envs/locks/{name}")


# look: what is new, and the change that it needs.


def look(folder: Path, declined: set[str]) -> None:
    """Write a patch and a text for each change that nobody has declined."""
    ends = time.monotonic() + _LONGEST_S
    folder.mkdir(parents=True, exist_ok=True)
    for change in changes():
        if time.monotonic() > ends:
            sys.stderr.write(f"no time for {change.name}: it comes tomorrow\n")
            return
        branch = f"origin/upkeep/{change.name}"
        begun = has_commit(ROOT, branch)
        if change.title in declined:
            sys.stderr.write(f"{change.title}: was declined\n")
        elif begun and is_of_a_person(ROOT, "HEAD", branch):
            sys.stderr.write(f"{branch}: somebody works on it\n")
        else:
            with worktree() as root:
                if begun:
                    _take_over(root, branch)
                link_locks(root)
                tree = Tree(root, ends)
                change.make(tree)
                git(root, "add", "--all", "envs", "observatory", "ivhl/script/envs")
                if begun and is_on(branch, root, "HEAD"):
                    sys.stderr.write(f"{branch}: nothing new\n")
                    continue
                # `open` makes the links.
                patch = difference(root, "--cached", "HEAD", "--", "envs", "observatory")
                if patch:
                    text = f"{change.title}\n\n{change.describe(tree)}"
                    (folder / f"{change.name}.patch").write_bytes(patch)
                    (folder / f"{change.name}.md").write_text(text, "utf-8")


@contextmanager
def worktree() -> Iterator[Path]:
    """Yield a checkout of HEAD in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="upkeep-") as folder:
        root = Path(folder, "tree")
        git(ROOT, "worktree", "add", "--quiet", "--detach", str(root), "HEAD")
        try:
            yield root
        finally:
            git(ROOT, "worktree", "remove", "--force", str(root))


def _take_over(root: Path, branch: str) -> None:
    """Apply what an earlier night found, so that tonight only adds to it."""
    base = git(root, "merge-base", "HEAD", branch)
    try:
        git(root, "apply", "--3way", "--allow-empty", data=difference(root, base, branch))
    except subprocess.CalledProcessError:
        sys.stderr.write(f"{branch}: does not fit onto main any more, and is made again\n")
        git(root, "reset", "--quiet", "--hard")


def changes() -> Iterator[Change]:
    """Yield the changes that today's registry asks for, the cheapest first."""
    from ivhl.matrix.project import load  # noqa: PLC0415  (`open` runs without ivhl)
    from ivhl.matrix.releases import find_new_releases  # noqa: PLC0415

    yield Change("ci-locks", "Refresh the locks of CI", refresh_locks_of_ci, lambda _: "")
    _, matrix = load(ROOT)
    for release in find_new_releases(ROOT, matrix):
        yield of_torch(release)
    newest = matrix.releases("extended")[-1]
    for python in new_pythons(matrix.pythons):
        yield of_python(python, newest)
    for name, version in new_versions(newest):
        yield of_library(name, version, newest)


def refresh_locks_of_ci(tree: Tree) -> None:
    """Resolve the locks of what CI installs again, with the newest packages."""
    tree.run(".ci/lock", "--upgrade")


def of_torch(release: str) -> Change:
    """Return how a release of PyTorch is added: row, locks, and verdicts on every library."""

    def make(tree: Tree) -> None:
        add_row(tree.root, "torch", f'release = "{release}"\ntier = "extended"\n')
        raise_day(tree.root, release)
        tree.ivhl("lock")
        link_locks(tree.root)
        observe(tree, release)

    def describe(tree: Tree) -> str:
        from ivhl.matrix.project import load  # noqa: PLC0415

        at = ("--workload", _WORKLOAD, "--results", "tried")
        for python in load(tree.root)[1].pythons:
            words = ("--python", python, "--torch", release, "--machine", "tried", "--no-publish")
            # A cell that cannot be made, or a case that fails, is what the table is to tell.
            tree.ivhl("bench", *words, *at)
        return (
            f"{_NEXT}\n\nWhere it can be installed:\n\n"
            + tree.ivhl("matrix", "--new", "--torch", release)
            + f"`{_WORKLOAD}` on the CPU of a hosted runner:\n\n"
            + tree.ivhl("compat", "--all", "--torch", release, *at)
            + f"{column(tree.root, release)}\n"
            + tree.ivhl("lock")
            + tree.ivhl("check", "locks")
        )

    return Change(f"torch-{release}", f"Add PyTorch {release}", make, describe)


def of_python(python: str, release: str) -> Change:
    """Return how a Python is added: row, locks, and verdicts on the newest release."""

    def make(tree: Tree) -> None:
        add_row(tree.root, "python", f'version = "{python}"\ntier = "extended"\n')
        tree.ivhl("lock")
        link_locks(tree.root)
        observe(tree, release, "--python", python)

    def describe(tree: Tree) -> str:
        shown = tree.ivhl("matrix", "--all", "--python", python)
        shown += f"{column(tree.root, release, python)}\n"
        shown += tree.ivhl("lock") + tree.ivhl("check", "locks")
        return f"{_NEXT}\n\nIts cells:\n\n{shown}"

    return Change(f"python-{python}", f"Add Python {python}", make, describe)


def of_library(name: str, version: str, release: str) -> Change:
    """Return how a new version of a library is observed on the newest release of PyTorch."""

    def make(tree: Tree) -> None:
        if version not in {one["version"] for one in records(tree.root, name)}:
            tree.ivhl("observe", name, "--torch", release, "--force")

    def describe(tree: Tree) -> str:
        before, now = verdicts(ROOT, name, release), verdicts(tree.root, name, release)
        lines = [
            f"    {case}: {why}" + (f" (before: {before[case]})" if case in before else "")
            for case, why in now.items()
            if why != before.get(case)
        ]
        return f"Verdicts on PyTorch {release}:\n\n" + "\n".join([*lines, ""])

    return Change(f"library-{name}", f"Observe {name} {version}", make, describe)


def observe(tree: Tree, release: str, *where: str) -> None:
    """Ask the libraries that have no verdict in a column, by default that of the oldest Python."""
    cell = re.compile(rf"py{re.escape(where[-1]) if where else '.*'}-torch{re.escape(release)}")
    left = [
        name
        for name in libraries(tree.root)
        if not any(cell.fullmatch(one["cell"]) for one in records(tree.root, name))
    ]
    if left:
        tree.ivhl("observe", *left, "--torch", release, *where)


def column(root: Path, release: str, python: str = "") -> str:
    """Return what the observatory found in a release: how often, and what does not work."""
    cell = re.compile(rf"py{re.escape(python) or '.*'}-torch{re.escape(release)}")
    found = [
        record
        for name in libraries(root)
        for record in {
            (one["cell"], one["case"], one["ask"]): one for one in records(root, name)
        }.values()
        if cell.fullmatch(record["cell"])
    ]
    counts = Counter(one["status"] for one in found)
    lines = [f"{status} {n}" for status, n in counts.most_common()]
    lines += [
        f"{one['cell']} {one['library']} {one['case']} {one['ask']}: {one['why']}"
        for one in found
        if one["status"] != "works"
    ]
    return "Libraries of the observatory:\n\n" + "".join(f"    {line}\n" for line in lines)


def add_row(root: Path, kind: str, row: str) -> None:
    """Append a row to its kind in the matrix, unless it is there."""
    path = root / "envs" / "matrix.toml"
    text = path.read_text(encoding="utf-8")
    if f"[[{kind}]]\n{row}" in text:
        return
    last = text.rindex(f"[[{kind}]]")
    end = text.find("\n\n", last)
    end = len(text) if end < 0 else end + 2
    head = text[:end].rstrip("\n")
    path.write_text(f"{head}\n\n[[{kind}]]\n{row}\n{text[end:]}".rstrip("\n") + "\n", "utf-8")


def raise_day(root: Path, release: str) -> None:
    """Raise ``exclude-newer`` to today if no lock of the release can be made without that."""
    from ivhl.errors import SpecError  # noqa: PLC0415
    from ivhl.matrix.locks import resolve_cell  # noqa: PLC0415
    from ivhl.matrix.project import load  # noqa: PLC0415

    _, matrix = load(root)
    try:
        resolve_cell(root, matrix, matrix.cells(releases=[release])[0], matrix.exclude_newer)
    except SpecError:  # the release is newer than that day
        path = root / "envs" / "matrix.toml"
        today = dt.datetime.now(tz=dt.UTC).date()
        day = re.compile(r"^exclude-newer = .*$", re.MULTILINE)
        path.write_text(
            day.sub(f"exclude-newer = {today}", path.read_text(encoding="utf-8")), "utf-8"
        )


def new_pythons(known: Sequence[str]) -> list[str]:
    """Return the Pythons with a final release that the matrix lacks, of those that uv installs."""
    from ivhl.matrix.uv import uv_bin  # noqa: PLC0415

    listed = subprocess.run(
        [uv_bin(), "python", "list", "--only-downloads", "--output-format", "json"],
        check=True,
        stdout=subprocess.PIPE,
    )
    final = [
        tuple(map(int, one["version"].split(".")[:2]))
        for one in json.loads(listed.stdout)
        if one["implementation"] == "cpython" and re.fullmatch(r"[0-9.]+", one["version"])
    ]
    newest = max(tuple(map(int, python.rstrip("t").split("."))) for python in known)
    return [".".join(map(str, python)) for python in sorted({p for p in final if p > newest})]


def new_versions(release: str) -> Iterator[tuple[str, str]]:
    """Yield each library whose newest version that fits a release has no record there."""
    from ivhl.errors import IvhlError  # noqa: PLC0415
    from ivhl.matrix.interpreter import find_interpreter  # noqa: PLC0415
    from ivhl.matrix.locks import lock_state  # noqa: PLC0415
    from ivhl.matrix.project import load  # noqa: PLC0415
    from ivhl.observatory.rows import read_rows  # noqa: PLC0415
    from ivhl.script.overlay import UnavailableError, overlay_lock  # noqa: PLC0415

    _, matrix = load(ROOT)
    cells = matrix.cells(releases=[release])
    lock = next(state for cell in cells if (state := lock_state(ROOT, cell)).kind == "locked")
    python = find_interpreter(ROOT, lock.cell.python).path
    for row in read_rows(ROOT / "observatory"):
        known = [r["version"] for r in records(ROOT, row.name) if r["cell"] == lock.cell.id]
        try:
            text = overlay_lock(python, lock, row.requirements)
        except (IvhlError, UnavailableError) as error:
            sys.stderr.write(f"{row.name}: {error}\n")
            continue
        found = re.search(rf"^{re.escape(row.name)}==(\S+)", text, re.MULTILINE)
        if found and known and found[1] not in known:
            yield row.name, found[1]


def libraries(root: Path) -> list[str]:
    """Return the names of the libraries of the observatory."""
    from ivhl.observatory.rows import read_rows  # noqa: PLC0415

    return [row.name for row in read_rows(root / "observatory")]


def records(root: Path, library: str) -> list[dict[str, str]]:
    """Return the records of a library, oldest first."""
    path = root / "observatory" / "records" / f"{library}.jsonl"
    return list(map(json.loads, path.read_text("utf-8").splitlines())) if path.is_file() else []


def verdicts(root: Path, library: str, release: str) -> dict[str, str]:
    """Return the newest verdict on each case of a library in a release."""
    return {
        f"{one['cell']} {one['case']} {one['ask']}": one["why"]
        for one in records(root, library)
        if one["torch"] == release
    }


# open: what `look` has written onto branches, without running anything of it.


def open_all(folder: Path) -> None:
    """Bring each change onto its branch, and open its pull request or update that."""
    git(ROOT, "config", "user.name", "github-actions[bot]")
    git(ROOT, "config", "user.email", BOT)
    git(ROOT, "fetch", "--quiet", "--prune", "origin", "+refs/heads/*:refs/remotes/origin/*")
    main = f"origin/{os.environ['MAIN']}"
    # A name can hold anything.
    plain = (p for p in folder.glob("*.patch") if _NAME.fullmatch(p.stem) and _is_plain(p))
    for patch in sorted(plain)[:_MOST]:
        try:
            open_one(patch, main)
        except (ValueError, subprocess.CalledProcessError) as error:
            # An error of one change leaves the other changes alone.
            sys.stderr.write(f"{patch.name}: {error}\n")
        finally:
            git(ROOT, "reset", "--quiet", "--hard")


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST


def open_one(patch: Path, main: str) -> None:
    """Bring a change onto its branch.

    Raises:
        ValueError: If its text is none, or the patch changes another file.
        CalledProcessError: If the patch does not fit onto main, or git or gh fails.
    """
    title, text = _text_of(patch.with_suffix(".md"))
    branch = f"upkeep/{patch.stem}"
    begun = has_commit(ROOT, f"origin/{branch}")
    if begun and is_of_a_person(ROOT, main, f"origin/{branch}"):
        sys.stderr.write(f"{branch}: somebody works on it\n")
        return
    refuse_other_files(patch)
    git(ROOT, "checkout", "--quiet", "--detach", main)
    git(ROOT, "apply", "--3way", "--index", str(patch.resolve()))
    link_locks(ROOT)
    git(ROOT, "add", "--all", "ivhl/script/envs/locks")
    old = git(ROOT, "rev-parse", f"origin/{branch}") if begun else ""
    if not begun or not is_on(f"origin/{branch}", ROOT, main):
        git(ROOT, "commit", "--quiet", "--message", title)
        lease = f"--force-with-lease=refs/heads/{branch}:{old}"
        git(ROOT, "push", "--quiet", lease, "origin", f"HEAD:refs/heads/{branch}")
    show(branch, title, text)


def _text_of(path: Path) -> tuple[str, str]:
    if not _is_plain(path):
        raise ValueError(f"{path.name} is no plain file")
    title, _, text = path.read_text("utf-8", errors="replace").partition("\n")
    if not _TITLE.fullmatch(title):
        raise ValueError(f"{path.name}: no title of a change: {title[:80]!r}")
    return title, text.strip()[:_LARGEST_TEXT]


def refuse_other_files(patch: Path) -> None:
    """Raise if a patch changes a file that no change has, or makes a link or a program.

    Raises:
        ValueError: If it does.
    """
    listed = git(ROOT, "apply", "--numstat", "-z", str(patch.resolve()))
    for row in filter(None, listed.split("\0")):
        name = row.split("\t", 2)[-1]
        if not any(re.fullmatch(path, name) for path in _PATHS):
            raise ValueError(f"must not change {name!r}")
    for line in git(ROOT, "apply", "--summary", str(patch.resolve())).splitlines():
        if not re.match(r" ?(create|delete) mode 100644 ", line):
            raise ValueError(f"must only change plain files: {line.strip()}")


def show(branch: str, title: str, text: str) -> None:
    """Open the pull request of a branch, or give it today's title and text.

    By the API: `gh pr edit` asks for the projects of a repository, too, which this token may not
    read (https://github.com/cli/cli/issues/6274).

    Raises:
        CalledProcessError: If gh fails.
    """
    place = f"repos/{os.environ['GITHUB_REPOSITORY']}/pulls"
    owner = os.environ["GITHUB_REPOSITORY"].partition("/")[0]
    # A fork may have a branch of that name, but not that owner.
    known = json.loads(_gh(f"{place}?state=open&head={owner}:{branch}"))
    about = {"title": title, "body": text}
    if known:
        _gh(f"{place}/{known[0]['number']}", "PATCH", about)
    else:
        _gh(place, "POST", {**about, "head": branch, "base": os.environ["MAIN"]})


def _gh(place: str, method: str = "GET", data: dict[str, str] | None = None) -> str:
    given = () if data is None else ("--input", "-")
    done = subprocess.run(
        ["gh", "api", "--method", method, place, *given],
        input=json.dumps(data),
        text=True,
        check=True,
        stdout=subprocess.PIPE,
    )
    return done.stdout


def main(arguments: list[str]) -> int:
    """Run the command line."""
    match arguments:
        case ["look", folder]:
            look(Path(folder).absolute(), set(sys.stdin.read().splitlines()))
        case ["open", folder]:
            open_all(Path(folder).absolute())
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
