"""Read what a project says of itself: name, dependencies, Pythons, how it is built.

Setuptools and PDM look for packages where none are named: ``lines_for_build`` keeps them from taking
ivhl's folders for packages of the project. Other backends build the package that has the name of
the project.

Source:
    setuptools' ``discovery.py`` and PDM's ``base.py``, of setuptools 84 and pdm-backend 2.4.
"""

from __future__ import annotations

import ast
import email
import re
import sys
import tempfile
import tomllib
import zipfile
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import suppress
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidName, canonicalize_name
from pydantic import BaseModel, ConfigDict, Field

from ivhl.errors import SpecError
from ivhl.git import NoRepositoryError, copy_tree, top_level
from ivhl.matrix.spec import read_plain, read_toml, toml_text, validated
from ivhl.matrix.uv import cause_of, run_uv
from ivhl.syntax import UNPARSED, decoded, parsed

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


# What ivhl and its commands make beside the benchmarks.
_MADE: Final = ("envs", "results", "site")
# ``FlatLayoutPackageFinder`` and ``FlatLayoutModuleFinder``: never the package of a project.
_RESERVED: Final = frozenset(
    {"ci", "bin", "debian", "doc", "docs", "documentation", "manpages", "news", "newsfragments",
     "changelog", "test", "tests", "unit_test", "unit_tests", "example", "examples", "scripts",
     "tools", "util", "utils", "python", "build", "dist", "venv", "env", "requirements", "tasks",
     "fabfile", "site_scons", "benchmark", "benchmarks", "exercise", "exercises", "htmlcov"}
)  # fmt: skip
_RESERVED_MODULES: Final = frozenset(
    {"setup", "conftest", "test", "tests", "example", "examples", "build", "toxfile", "noxfile",
     "pavement", "dodo", "tasks", "fabfile", "SConstruct", "Sconstruct", "sConstruct",
     "sconstruct", "conanfile", "manage", "benchmark", "benchmarks", "exercise", "exercises"}
)  # fmt: skip


def lines_for_build(root: Path, folder: str) -> str:
    """Return the tables for ``pyproject.toml`` with which the project builds as without ivhl.

    Empty if it does so anyway, as it does with these tables.

    Args:
        root: Root of the project.
        folder: Folder of the benchmarks.

    Raises:
        SpecError: If no table can say so: without ``[project]``, setuptools reads none.
    """
    raw = _pyproject(root)
    backend = str(_table(raw, "build-system").get("build-backend", "setuptools"))
    if backend.startswith("setuptools"):
        named = _stated(root, raw)
        if "packages" in named or "py_modules" in named or "package_dir" in named:
            return ""
        if (root / "src").is_dir():
            return ""
        tables = _of_setuptools(root, folder)
        if "project" not in raw:
            raise SpecError(
                f"{root}: names no packages, so setuptools would find {_MADE[0]} among them",
                hint=f"name them in setup.py or setup.cfg; found are now:\n{tables.strip()}",
            )
        return tables
    if backend.startswith("pdm."):
        build = _table(raw, "tool", "pdm", "build")
        finds = not (build.get("includes") or build.get("package-dir") or (root / "src").is_dir())
        if finds and folder not in _texts(build.get("excludes")):
            packages = {path.parent.name for path in root.glob("*/__init__.py*")} - {folder}
            kept = f"excludes = [{toml_text(folder)}]" if packages else 'includes = ["*.py"]'
            return f"[tool.pdm.build]\n{kept}\n"
    return ""


def _of_setuptools(root: Path, folder: str) -> str:
    """Return what automatic discovery finds in the flat layout, as a setting."""
    ours = {name for name in _MADE if not (root / name / "__init__.py").exists()} | {folder}
    packages = sorted(
        path.name
        for path in root.iterdir()
        if path.is_dir()
        and path.name.removesuffix("-stubs").isidentifier()
        and path.name not in _RESERVED | ours
        and not path.name.startswith(("_", "."))
    )
    if packages:
        named = [text for name in packages for text in (name, f"{name}.*")]
        lines = f"[tool.setuptools.packages.find]\ninclude = {_array(named)}\n"
        if odd := [text for name in packages for text in _no_identifiers(root / name, name)]:
            lines += f"exclude = {_array(odd)}\n"
        return lines
    modules = sorted(
        path.stem
        for path in root.glob("*.py")
        if path.stem.isidentifier()
        and path.stem not in _RESERVED_MODULES
        and not path.stem.startswith("_")
    )
    return f"[tool.setuptools]\npackages = []\npy-modules = {_array(modules)}\n"


def _no_identifiers(folder: Path, package: str) -> Iterator[str]:
    """Yield the patterns of folders in a package that the search takes and discovery does not."""
    left = [(folder, package)]
    while left:  # no recursion: a tree may be deeper than Python's stack
        folder, package = left.pop()
        with suppress(OSError):
            for path in sorted(folder.iterdir()):
                if path.is_symlink() or not path.is_dir() or "." in path.name:
                    continue
                name = f"{package}.{path.name}"
                if path.name.isidentifier():
                    left.append((path, name))
                else:
                    yield from (name, f"{name}.*")


def _array(texts: list[str]) -> str:
    return f"[{', '.join(map(toml_text, texts))}]"


def _stated(root: Path, raw: dict[str, Any]) -> set[str]:
    """Return which options of setuptools are stated anywhere, by their names in Python."""
    stated = {key.replace("-", "_") for key in _table(raw, "tool", "setuptools")}
    stated |= set(_options(root))
    for word in _setup_words(root):
        # Computed arguments may name packages. Setuptools looks for none where [project] is
        # missing and extensions are named.
        if word.arg is None or (word.arg == "ext_modules" and "project" not in raw):
            stated.add("packages")
        else:
            stated.add(word.arg)
    return stated


def _setup_words(root: Path) -> list[ast.keyword]:
    """Return the keywords of ``setup(...)`` in ``setup.py``."""
    try:
        tree = parsed(decoded(root / "setup.py"))
    except (OSError, *UNPARSED):
        return []
    return [word for call in calls_of_setup(tree) for word in call.keywords]


def _options(root: Path) -> dict[str, str]:
    """Return ``[options]`` of ``setup.cfg``."""
    config = ConfigParser(interpolation=None)
    with suppress(OSError, ValueError, ConfigError):
        config.read_string(read_plain(root / "setup.cfg").decode())
    return dict(config["options"]) if config.has_section("options") else {}


def _pyproject(root: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        return tomllib.loads(read_plain(root / "pyproject.toml").decode())
    return {}


def _table(raw: Any, *keys: str) -> dict[str, Any]:  # noqa: ANN401  (whatever TOML holds)
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw if isinstance(raw, dict) else {}


def _texts(value: object) -> list[str]:
    listed = value if isinstance(value, list | tuple) else ()
    return [text for text in listed if isinstance(text, str)]
