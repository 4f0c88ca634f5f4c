"""Decide what ``ivhl init`` writes, and write it. Never changes what is in a file already."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform as machine
import re
import sys
import tempfile
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ivhl.errors import LockError, SpecError
from ivhl.git import current_commit, top_level
from ivhl.init.declare import FileChange, declaration, fill
from ivhl.init.source import ProjectSource, lines_for_build, load_pyproject, read_source
from ivhl.matrix import locks
from ivhl.matrix.project import MATRIX
from ivhl.matrix.releases import highest
from ivhl.matrix.spec import LARGEST_TEXT, canonical_release, load_matrix, read_plain, toml_text
from ivhl.matrix.uv import uv_pool
from ivhl.matrix.wheels import build_missing, needed_wheels, pin_of
from ivhl.records.files import UNFINISHED, without_links
from ivhl.records.text import is_printable
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from packaging.specifiers import SpecifierSet

    from ivhl.matrix.locks import LockState
    from ivhl.matrix.spec import CellSpec, Matrix


IGNORED = ("/.asv/", "/site/")
# In the benchmarks until a person puts a model of the project into them.
EXAMPLE_MARK = "The example of `ivhl init`"
WORKFLOW = Path(".github", "workflows", "ivhl.yml")
# Folders of what ``ivhl lock`` makes.
_LOCKED = (Path("envs", "locks"), Path("envs", "built"))
_LARGEST_WHEEL = 1 << 30  # bytes
# In the matrix until a package has to be built.
_BUILT_NONE = "built = []\n"
_PYTHON = re.compile(r"3\.\d{1,3}t?")
# Locks that are resolved at the same time; uv itself waits for the network most of the time.
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class _Locked:
    """The outcome of locking: new files, the state of every cell, and rows that the matrix needs."""

    matrix: Matrix
    changes: tuple[FileChange, ...]
    states: tuple[LockState, ...]
    forced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InitPlan:
    """What ``ivhl init`` would write.

    Attributes:
        changes: In the order in which they are written; empty if the project has everything.
        notes: What the person should know.
        folder: Folder of the benchmarks.
        cells: The cells and how they could be locked.
    """

    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]
    folder: str
    cells: tuple[LockState, ...]


def make_plan(
    root: Path,
    pythons: Sequence[str],
    releases: Sequence[str],
    *,
    github: bool,
    today: dt.date,
    target: str = "",
    tell: Callable[[str], object] = str,
) -> InitPlan:
    """Read the project and return what it lacks. Writes nothing into it.

    Args:
        root: Folder of the project.
        pythons: Pythons to measure on; empty means the one that runs this.
        releases: PyTorch releases; empty means the newest that the project allows.
        github: Whether a workflow for GitHub Actions is wanted.
        today: Packages published on this day or later are ignored, so that the locks can be made
            again.
        target: ``package.module:function`` to declare; empty for the example.
        tell: Prints what takes long.

    Raises:
        SpecError: If the project cannot be read, or forbids what is asked for.
        LockError: If the registry does not answer.
    """
    source = read_source(root)
    top = top_level(root)
    _refuse_links(root, top)
    notes: list[str] = []
    declared = _declared(source)
    folder = declared or _folder(source, target)
    files = list(_benchmarks(source, folder, target)) if target or not declared else []
    setting = _setting(source, folder, declared=bool(declared))
    changes: list[FileChange] = []
    path = root / MATRIX
    if path.is_file():
        notes += _not_in_matrix(load_matrix(path), pythons, releases)
        text = path.read_text(encoding="utf-8")
        locked = _locked(root, text, tell)
    else:
        pythons, releases, why = _chosen(source, pythons, releases)
        notes += why
        text = _matrix_text(source, pythons, releases, today - dt.timedelta(days=1))
        locked = _locked(root, text, tell)
        if built := _to_build(root, locked):
            more = text.replace(_BUILT_NONE, f"built = [{', '.join(map(toml_text, built))}]\n")
            try:
                locked = _locked(root, more, tell)
                text = more
                notes.append(f"no wheel in the registry, built from source: {', '.join(built)}")
            except LockError as error:  # the cells stay unavailable, for the reason that uv gives
                notes.append(str(error))
        changes.append(FileChange.of(MATRIX, "\n".join([text, *locked.forced])))
    changes += locked.changes
    notes += [
        f"{state.cell.id} cannot be made: {state.message.splitlines()[0]}"
        for state in locked.states
        if state.kind == "unavailable"
    ]
    changes += [one for one in files if not (root / one.path).exists()]
    changes += [one for one in (setting, _ignored(root)) if one is not None]
    if github and not (top / WORKFLOW).is_file():
        place = Path(os.path.relpath(top / WORKFLOW, root.resolve()))
        changes.append(FileChange.of(place, _workflow(source, top)))
    return InitPlan(tuple(changes), tuple(notes), folder, locked.states)


def _refuse_links(root: Path, top: Path) -> None:
    """Refuse links before anything is resolved: the files would be written where they lead.

    Raises:
        ResultsError: If there is one; names it.
    """
    for name in (MATRIX, *_LOCKED, "pyproject.toml", ".gitignore"):
        without_links(root / name, root)
    without_links(top / WORKFLOW, top)


def _declared(source: ProjectSource) -> str:
    """Return the folder or attribute that ``[tool.ivhl]`` names; empty without that table."""
    if not source.has_pyproject:
        return ""
    tool = load_pyproject(source.root / "pyproject.toml").tool.ivhl
    return str(tool.get("benchmarks") or tool.get("workloads") or "")


def _folder(source: ProjectSource, target: str) -> str:
    """Return a name for the folder of benchmarks that nothing has yet, or that a killed run made."""
    names = ("benchmarks", "ivhl_benchmarks")
    free = [name for name in names if _holds_only_ours(source, name, target)]
    if not free:
        raise SpecError(
            f"{source.root}: {' and '.join(names)} exist, and no [tool.ivhl] names one of them",
            hint='write [tool.ivhl] benchmarks = "FOLDER" into pyproject.toml; the folder needs an '
            "__init__.py",
        )
    return free[0]


def _holds_only_ours(source: ProjectSource, folder: str, target: str) -> bool:
    place = source.root / folder
    if not place.is_dir() or place.is_symlink():
        return not os.path.lexists(place)
    ours = {change.path.name: change.data for change in _benchmarks(source, folder, target)}
    return all(
        path.name.startswith(UNFINISHED)
        or (path.is_file() and ours.get(path.name) == read_plain(path))
        for path in place.iterdir()
    )


def _not_in_matrix(
    matrix: Matrix, pythons: Sequence[str], releases: Sequence[str]
) -> Iterator[str]:
    for python in pythons:
        if python not in matrix.pythons:
            yield f'{MATRIX} is there and stays as it is; add [[python]] version = "{python}"'
    for release in releases:
        if matrix.release(release) not in matrix.every_release:
            yield f'{MATRIX} is there and stays as it is; add [[torch]] release = "{release}"'


def _chosen(
    source: ProjectSource, pythons: Sequence[str], releases: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """Return the Pythons and releases to begin with, and notes about them.

    Raises:
        SpecError: If the project forbids a Python that is asked for.
        LockError: If the registry does not answer.
    """
    here = "{}.{}".format(*sys.version_info)
    chosen = list(dict.fromkeys(pythons or (here,)))
    for python in chosen:
        if not _PYTHON.fullmatch(python):
            raise SpecError(
                f"--python: must be a Python like 3.12 (got {python!r})",
                hint=f"this one is {here}; 3.13t is one without the global interpreter lock",
            )
    forbidden = [
        python
        for python in chosen
        # The newest patch of a Python is not known here: any of them will do.
        if not any(
            source.requires_python.contains(f"{python.removesuffix('t')}.{n}") for n in (0, 99)
        )
    ]
    if forbidden:
        raise SpecError(
            f"{source.name}: requires-python {str(source.requires_python)!r} excludes Python "
            f"{', '.join(forbidden)}",
            hint="name one that it allows with --python, e.g. --python "
            f"{_allowed_python(source.requires_python, forbidden[0])}, or widen requires-python",
        )
    if not releases:
        newest = highest(chosen[-1], f"torch{source.torch}")
        return chosen, [newest], [f"PyTorch {newest}: the newest that {source.name} allows"]
    found: list[str] = []
    for text in releases:
        try:
            found.append(canonical_release(text))
        except ValueError as error:
            raise SpecError(
                f"--torch: must be a release like 2.6.0: {error} (got {text!r})",
                hint="write three numbers",
            ) from error
    notes = [
        f"{source.name} requires torch{source.torch}, which excludes {release}; it is measured all "
        "the same, since ivhl installs the project without its dependencies"
        for release in found
        if not source.torch.contains(release, prereleases=True)
    ]
    return chosen, list(dict.fromkeys(found)), notes


def _allowed_python(allowed: SpecifierSet, asked: str) -> str:
    """Return the Python nearest to the one asked for: the most releases are likely to have both."""
    minor = int(asked.removesuffix("t").partition(".")[2])
    found = [n for n in range(9, 16) if allowed.contains(f"3.{n}.0")]
    return f"3.{min(found, key=lambda n: abs(n - minor), default=12)}"


def _matrix_text(
    source: ProjectSource, pythons: Sequence[str], releases: Sequence[str], until: dt.date
) -> str:
    requires = dict.fromkeys((*source.requires, *source.build_requires))
    rows = [f'[[torch]]\nrelease = "{release}"\ntier = "default"\n' for release in releases]
    return (
        fill(
            "matrix.toml",
            name=source.name,
            until=until.isoformat(),
            platform=f"{machine.machine()}-manylinux_2_28",
            asv_runner=version("asv-runner"),
            requires="".join(f"    {toml_text(text)},\n" for text in requires),
            pythons="\n".join(f'[[python]]\nversion = "{python}"\n' for python in pythons),
            releases="\n".join(rows),
        ).rstrip()
        + "\n"
    )


def _locked(root: Path, text: str, tell: Callable[[str], object]) -> _Locked:
    """Lock every cell in a temporary folder, beside the locks that the project has.

    Raises:
        SpecError: If the matrix is not valid.
        LockError: If the registry does not answer, or its answer does not make a valid lock.
    """
    with tempfile.TemporaryDirectory(prefix="ivhl-init-") as name:
        stage = Path(name)
        for folder in _LOCKED:
            (stage / folder).mkdir(parents=True)
            for path in (root / folder).glob("*"):
                if path.is_file():
                    largest = _LARGEST_WHEEL if path.suffix == ".whl" else LARGEST_TEXT
                    (stage / folder / path.name).write_bytes(read_plain(path, largest))
        (stage / MATRIX).write_text(text, encoding="utf-8")
        matrix = load_matrix(stage / MATRIX)
        new = build_missing(stage, matrix)
        cells = matrix.cells(tier="extended")
        missing = [cell for cell in cells if locks.lock_state(stage, cell).kind == "missing"]
        if missing:
            tell(f"resolving the packages of {counted(len(missing), 'cell')} ...")
        with uv_pool(_AT_ONCE) as pool:
            releases = dict.fromkeys(cell.torch for cell in missing)
            list(pool.map(lambda release: _lock(stage, matrix, release, missing), releases))
        states = [locks.lock_state(stage, cell) for cell in cells]
        new += [state.path for state in states if state.cell in missing]
        # Hashes first: without its lock one is of no account, and the lock is made again.
        changes = (
            *_sums(root, stage),
            *(FileChange(path.relative_to(stage), path.read_bytes()) for path in new),
        )
    return _Locked(matrix, changes, tuple(states), tuple(_forced_rows(matrix, states)))


def _sums(root: Path, stage: Path) -> Iterator[FileChange]:
    """Yield the hashes of locks that the project lacks."""
    locks.write_missing_sums(stage)
    folder = Path("envs", "locks")
    known = locks.read_sums(root / folder)
    made = locks.read_sums(stage / folder) or {}
    lacking = {name: digest for name, digest in made.items() if name not in (known or {})}
    if lacking:
        yield FileChange.of(folder / locks.SUMS, locks.sums_text(lacking), added=known is not None)


def _to_build(root: Path, locked: _Locked) -> list[str]:
    """Return pins of the packages without which cells cannot be locked, and that can be built.

    Raises:
        InterpreterError: If a Python is not found.
    """
    found: dict[str, None] = {}
    for state in locked.states:
        for name in needed_wheels(state.message) if state.because else ():
            with suppress(LockError):  # the cell stays unavailable, and says why
                asked = [f"torch=={state.cell.torch}", state.because]
                found[pin_of(root, locked.matrix, state.cell.python, name, asked)] = None
    return list(found)


def _lock(stage: Path, matrix: Matrix, release: str, missing: Sequence[CellSpec]) -> None:
    cells = matrix.cells(releases=[release])
    if set(cells) <= set(missing):
        locks.lock_release(stage, matrix, release)
        return
    for cell in cells:
        if cell in missing:
            locks.make_lock(stage, matrix, cell)


def _forced_rows(matrix: Matrix, states: Sequence[LockState]) -> Iterator[str]:
    """Yield a [[forced]] row for each package that only some Pythons of a release have."""
    known = {(row.torch, row.package) for row in matrix.forced}
    for release in matrix.releases("extended"):
        there = [s for s in states if s.cell.torch == release and s.kind == "locked"]
        for package in sorted({name for state in there for name in state.packages}):
            have = [state for state in there if package in state.packages]
            if len(have) == len(there) or (release, package) in known:
                continue
            asking = sorted(
                {via for s in have for pin in s.pins if pin.name == package for via in pin.via}
            )
            yield fill(
                "forced.toml",
                torch=toml_text(release),
                package=toml_text(package),
                pythons=", ".join(toml_text(state.cell.python) for state in have),
                reason=toml_text(f"{' and '.join(asking)} asks for it on these Pythons only"),
            )


def _benchmarks(source: ProjectSource, folder: str, target: str = "") -> Iterator[FileChange]:
    """Yield the package of benchmarks, with the file of a target, or with the example."""
    imported = f"import {source.package}  # noqa: F401\n" if source.package else ""
    templates = {"__init__.py": "init.py.txt"}
    if not target:
        templates |= {"model.py": "model.py.txt", "model_calls.py": "model_calls.py.txt"}
    for name, template in templates.items():
        text = fill(
            template, name=source.name, folder=folder, mark=EXAMPLE_MARK, import_package=imported
        )
        yield FileChange.of(Path(folder, name), text)
    if target:
        yield declaration(source.root, folder, target)


def _setting(source: ProjectSource, folder: str, *, declared: bool) -> FileChange | None:
    """Return what ``pyproject.toml`` lacks.

    Raises:
        SpecError: If it cannot be added at the end.
    """
    named = "" if source.named_there else f"name = {toml_text(source.name)}\n"
    tables = [
        "" if declared else f"[tool.ivhl]\n{named}benchmarks = {toml_text(folder)}\n",
        lines_for_build(source.root, folder),
    ]
    text = "\n".join(filter(None, tables))
    path = source.root / "pyproject.toml"
    if not text:
        return None
    if not source.has_pyproject:
        return FileChange.of(Path(path.name), text)
    there = read_plain(path).decode()
    text = ("\n" if there.endswith("\n") else "\n\n") + text
    try:
        tomllib.loads(there + text)
    except ValueError as error:
        raise SpecError(
            f"{path}: tables cannot be added at its end: {error}",
            hint=f"write these lines into the tables that are there:\n{text.strip()}",
        ) from error
    return FileChange.of(Path(path.name), text, added=True)


def lacking_ignores(root: Path) -> list[str]:
    """Return the lines that ``.gitignore`` should have and lacks."""
    path = root / ".gitignore"
    text = read_plain(path).decode(errors="replace") if os.path.lexists(path) else ""
    there = {line.strip().strip("/") for line in text.splitlines()}
    return [line for line in IGNORED if line.strip("/") not in there]


def _ignored(root: Path) -> FileChange | None:
    lacking = lacking_ignores(root)
    if not lacking:
        return None
    path = root / ".gitignore"
    text = read_plain(path).decode(errors="replace") if path.is_file() else ""
    start = "" if not text or text.endswith("\n") else "\n"
    return FileChange.of(Path(path.name), start + "\n".join(lacking) + "\n", added=path.is_file())


def _workflow(source: ProjectSource, top: Path) -> str:
    """Return the workflow.

    Raises:
        SpecError: If GitHub would not read the folder's name as it is.
    """
    inside = source.root.resolve().relative_to(top).as_posix()
    # GitHub evaluates expressions also in quotes; of the rest, JSON's texts are YAML's.
    if not is_printable(inside) or "${{" in inside:
        raise SpecError(
            f"--format github: the folder's name must be printable, without ${{{{ (got {inside!r})",
            hint="rename the folder, or leave out --format github",
        )
    folder = json.dumps(inside, ensure_ascii=False)
    # A name such as `main` would run whatever is pushed there later.
    return fill("workflow.yml", folder=folder, ivhl=installed_commit())


def installed_commit() -> str:
    """Return the commit that the installed ivhl was made from.

    Raises:
        SpecError: If it was installed from an archive, which does not tell.
    """
    source: dict[str, Any] = {}
    with suppress(PackageNotFoundError, ValueError):
        source = json.loads(distribution("ivhl").read_text("direct_url.json") or "{}")
    if "vcs_info" in source:
        return str(source["vcs_info"]["commit_id"])
    cloned = unquote(urlsplit(source["url"]).path) if "dir_info" in source else ""
    for folder in (cloned, Path(__file__).parents[2]):
        with suppress(SpecError, OSError):
            # Around a folder of packages git finds the repository of somebody else.
            if folder and top_level(Path(folder)).samefile(folder):
                return current_commit(Path(folder))
    raise SpecError(
        "the commit of the installed ivhl is not known, and the workflow calls ivhl's actions by it",
        hint="install ivhl with git: python -m pip install git+https://github.com/ivhl/ivhl",
    )
