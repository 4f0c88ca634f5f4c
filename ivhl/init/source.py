"""Read what a project says of itself: name, dependencies, Pythons, how it is built."""

from __future__ import annotations

import ast
import email
import re
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidName, canonicalize_name
from pydantic import BaseModel, ConfigDict, Field

from ivhl.errors import SpecError
from ivhl.git import NoRepositoryError, copy_tree, top_level
from ivhl.matrix.spec import read_plain, read_toml, validated
from ivhl.matrix.uv import cause_of, run_uv
from ivhl.syntax import parsed, read_trees

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# What a project without [build-system] is built with (PEP 518).
_DEFAULT_BUILD = ("setuptools>=40.8.0",)
_BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
# What uv, or Python in it, says where a build needs torch.
_NO_TORCH = re.compile(r"No module named 'torch'|depends on `torch`")


class _Table(BaseModel):
    # Keys of others; their tools check them.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _ProjectTable(_Table):
    name: str = ""
    dependencies: list[str] = []
    dynamic: list[str] = []
    requires_python: str = Field(default="", validation_alias="requires-python")


class _BuildSystem(_Table):
    requires: list[str] = list(_DEFAULT_BUILD)


class _ToolTable(_Table):
    ivhl: dict[str, Any] = {}


class Pyproject(_Table):
    """What ivhl reads of a ``pyproject.toml`` that need not be of an ivhl project yet."""

    project: _ProjectTable = _ProjectTable()
    build_system: _BuildSystem = Field(default=_BuildSystem(), validation_alias="build-system")
    tool: _ToolTable = _ToolTable()


@dataclass(frozen=True, slots=True)
class ProjectSource:
    """A project as it describes itself.

    Attributes:
        root: Folder with ``pyproject.toml`` or ``setup.py``.
        name: Name of the distribution.
        requires: Its run-time dependencies, without torch and without extras.
        build_requires: What it is built with.
        torch: Which releases of torch it allows.
        requires_python: Which Pythons it allows.
        package: Name of the package to import; empty if none was found.
        has_pyproject: Whether ``pyproject.toml`` exists.
        named_there: Whether that file has ``[project] name``.
    """

    root: Path
    name: str
    requires: tuple[str, ...]
    build_requires: tuple[str, ...]
    torch: SpecifierSet
    requires_python: SpecifierSet
    package: str
    has_pyproject: bool
    named_there: bool


def read_source(root: Path) -> ProjectSource:
    """Read the project in a folder.

    A project whose name or dependencies are not in ``[project]`` is built once to learn them.

    Raises:
        SpecError: If the folder has no project, is in no git repository, or cannot be read or built.
    """
    path = root / "pyproject.toml"
    if not any((root / name).is_file() for name in _BUILD_FILES):
        raise SpecError(f"{root}: no pyproject.toml and no setup.py", hint=_where(root))
    if not any((root / name).is_file() for name in _BUILD_FILES[:2]):
        raise SpecError(
            f"{root}: has a setup.cfg alone, which nothing builds",
            hint='write a pyproject.toml with [build-system] requires = ["setuptools"]',
        )
    try:
        top_level(root)
    except NoRepositoryError as error:
        raise SpecError(
            f"{root}: is in no git repository, and ivhl measures commits",
            hint="git init && git add --all && git commit -m 'Begin'",
        ) from error
    pyproject = load_pyproject(path) if path.is_file() else Pyproject()
    project = pyproject.project
    if project.name and "dependencies" not in project.dynamic:
        name, requires = project.name, project.dependencies
        requires_python = project.requires_python
    else:
        name, requires, requires_python = _built_metadata(root)
    build = pyproject.build_system.requires
    place = path.name if path.is_file() else "setup.py"
    try:
        canonicalize_name(name, validate=True)
    except InvalidName as error:
        raise SpecError(
            f"{place}: name: must be a name by PEP 508: ASCII letters, digits, . _ - (got {name!r})",
            hint="correct it; what builds the project refuses it, too",
        ) from error
    needs = _requirements(requires, f"{place}: dependencies")
    builds = _requirements(build, f"{place}: [build-system] requires")
    try:
        allowed = SpecifierSet(requires_python)
    except InvalidSpecifier as error:
        raise SpecError(f"{place}: requires-python: {error}", hint=f"correct {place}") from error
    return ProjectSource(
        root=root,
        name=name,
        requires=_without_torch(needs),
        build_requires=_without_torch(builds),
        torch=_torch_of(needs),
        requires_python=allowed,
        package=_package(root, name),
        has_pyproject=path.is_file(),
        named_there=bool(project.name),
    )


def load_pyproject(path: Path) -> Pyproject:
    """Return what a ``pyproject.toml`` says of its project.

    Raises:
        SpecError: If it cannot be read, or has values of the wrong type; names all of them.
    """
    hint = f"correct {path}"
    return validated(Pyproject, read_toml(path, hint), path.name, hint)


def _where(root: Path) -> str:
    """Return a hint: the folders below that hold a project, as in a monorepo."""
    found = sorted(
        path.parent.relative_to(root).as_posix()
        for name in _BUILD_FILES[:2]
        for path in (*root.glob(f"*/{name}"), *root.glob(f"*/*/{name}"))
    )
    if found:
        return f"change into the package's folder, e.g. cd {found[0]}"
    return (
        "ivhl installs what it measures: write a pyproject.toml with [build-system] and [project] "
        "name, version and dependencies"
    )


def _requirements(texts: Iterable[str], place: str) -> list[Requirement]:
    found = []
    for text in texts:
        try:
            one = Requirement(text)
        except InvalidRequirement as error:
            reason = str(error).splitlines()[0]
            raise SpecError(f"{place}: {reason} (got {text!r})", hint="correct it") from error
        if one.url:
            raise SpecError(
                f"{place}: {one.name} comes from an address, not from a registry (got {text!r})",
                hint="a lock names packages of a registry by version and hash: require a release, "
                "or leave the package out of the dependencies and its workloads with it",
            )
        if one.marker is None or "extra" not in str(one.marker):
            found.append(one)
    return found


def _without_torch(requirements: Iterable[Requirement]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(str(one) for one in requirements if canonicalize_name(one.name) != "torch")
    )


def _torch_of(requirements: Iterable[Requirement]) -> SpecifierSet:
    found = SpecifierSet()
    for one in requirements:
        if canonicalize_name(one.name) == "torch" and one.marker is None:
            found &= one.specifier
    return found


def _built_metadata(root: Path) -> tuple[str, list[str], str]:
    """Build the project and return its name, dependencies and ``Requires-Python``.

    One that needs torch to be built is read instead, if its ``setup.py`` has them as literals: the
    cells, which hold torch, build it.

    Raises:
        SpecError: If it cannot be built.
    """
    with tempfile.TemporaryDirectory(prefix="ivhl-init-") as folder:
        # A copy, since builds leave files behind.
        tree = copy_tree(root, Path(folder, "tree"))
        # This Python: uv would fetch the one of the project's .python-version.
        command = ["build", "--wheel", "--python", sys.executable, "--out-dir", folder]
        done = run_uv([*command, str(tree)], cwd=root)
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            printed = done.stdout + done.stderr
            needs_torch = _NO_TORCH.search(printed) is not None
            if needs_torch and (found := literals_of_setup(root / "setup.py")):
                return found
            hint = "build it yourself to see more: uv build --wheel"
            if needs_torch:
                hint = (
                    "write [project] name and dependencies in pyproject.toml: then nothing is "
                    "built to learn them, and the cells, which hold torch, build the project"
                )
            raise SpecError(
                f"{root}: has its dependencies not in [project] of pyproject.toml, and cannot be "
                f"built to learn them: {cause_of(printed)}",
                hint=hint,
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            (inside,) = [x for x in wheel.namelist() if x.endswith(".dist-info/METADATA")]
            about = email.message_from_bytes(wheel.read(inside))
    return about["Name"], about.get_all("Requires-Dist") or [], about["Requires-Python"] or ""


def calls_of_setup(tree: ast.Module) -> list[ast.Call]:
    """Return the calls of ``setup(...)`` in a ``setup.py``."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call for call in calls if ast.unparse(call.func).rpartition(".")[2] == "setup"]


def literals_of_setup(path: Path) -> tuple[str, list[str], str] | None:
    """Return what ``setup(...)`` says in literals; ``None`` if the name or a list is computed."""
    try:
        tree = parsed(read_plain(path).decode())
        (call,) = calls_of_setup(tree)
        stated = {
            word.arg: ast.literal_eval(word.value)
            for word in call.keywords
            if word.arg in {"name", "install_requires", "python_requires"}
        }
        found = _ProjectTable.model_validate(
            {
                "name": stated["name"],
                "dependencies": list(stated.get("install_requires", ())),
                "requires-python": stated.get("python_requires", ""),
            }
        )
    except (OSError, SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
        return None
    return found.name, found.dependencies, found.requires_python


def _package(root: Path, name: str) -> str:
    """Return the package to import: the one named like the distribution, or the only one."""
    wanted = canonicalize_name(name).replace("-", "_")
    found = list(dict.fromkeys(_packages(root)))
    for package in found:
        if package.lower() == wanted:
            return package
    return found[0] if len(found) == 1 else ""


def _packages(root: Path) -> Iterator[str]:
    for folder in (root / "src", root):
        for path in sorted(folder.glob("*/__init__.py")):
            name = path.parent.name
            if name.isidentifier() and not iskeyword(name) and name not in {"tests", "benchmarks"}:
                yield name


def modules_of(source: ProjectSource, limit: int = 12) -> list[str]:
    """Return public classes of the package that derive from ``Module``, exported ones first."""
    exported: set[str] = set()
    found: dict[str, None] = {}
    for place in (source.root / "src", source.root) if source.package else ():
        for file in read_trees(place / source.package).files:
            if file.name == "__init__.py":
                imports = (node for node in file.tree.body if isinstance(node, ast.ImportFrom))
                exported |= {alias.asname or alias.name for one in imports for alias in one.names}
            found |= dict.fromkeys(_module_classes(file.tree))
    return sorted(found, key=lambda name: name not in exported)[:limit]


def _module_classes(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        if "Module" in {ast.unparse(base).rpartition(".")[2] for base in node.bases}:
            yield node.name
