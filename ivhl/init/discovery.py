"""Keep build backends from taking ivhl's folders for packages of the project.

Setuptools and PDM look for packages where none are named. Other backends build the package that has
the name of the project.

Source:
    setuptools' ``discovery.py`` and PDM's ``base.py``, of setuptools 84 and pdm-backend 2.4.
"""

from __future__ import annotations

import tomllib
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ivhl.errors import SpecError
from ivhl.init.source import calls_of_setup
from ivhl.matrix.spec import read_plain, toml_text
from ivhl.syntax import UNPARSED, decoded, parsed

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator
    from pathlib import Path

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
    backend = _backend(raw)
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


def _backend(raw: dict[str, Any]) -> str:
    return str(_table(raw, "build-system").get("build-backend", "setuptools"))


def _table(raw: Any, *keys: str) -> dict[str, Any]:  # noqa: ANN401  (whatever TOML holds)
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw if isinstance(raw, dict) else {}


def _texts(value: object) -> list[str]:
    listed = value if isinstance(value, list | tuple) else ()
    return [text for text in listed if isinstance(text, str)]
