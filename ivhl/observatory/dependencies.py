"""Read what a project depends on: requirements, pyproject.toml, uv.lock, pylock.toml, environments.

Offline, and nothing is installed. Formats: pip's requirements files, PEP 621, PEP 751, version 1 of
uv's lock, metadata of installed packages.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from typing import TYPE_CHECKING, Any, Final

from packaging.markers import InvalidMarker, Marker
from packaging.pylock import Pylock, PylockValidationError
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from ivhl.errors import SpecError
from ivhl.matrix.spec import read_plain, read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from pathlib import Path

# In a folder, the first of these that is there.
FILES: Final = ("uv.lock", "pylock.toml", "pyproject.toml", "requirements.txt")
_READS: Final = f"it reads {', '.join(FILES)}, and environments"
_EXPORT: Final = "export requirements.txt: poetry export, pdm export, pipenv requirements"
_FURTHER: Final = re.compile(r"(?:-r\s*|--requirement(?:\s*=\s*|\s+))(\S.*)")  # a file
_URL: Final = re.compile(
    r"-e\b|--editable\b|[\w+.-]+://|git\+|\.|/|\w:\\|[^\s;]+\.(?:whl|zip|tar\.\w+)\b"
)
_EGG: Final = re.compile(r"#(?:.*&)?egg=([\w.-]+)")
_LARGEST: Final = 32 << 20  # bytes of a lock


@dataclass(frozen=True, slots=True)
class Dependency:
    """A package that a project asks for, or that its lock or environment has.

    Attributes:
        name: As PyPI writes it in addresses.
        versions: Those allowed; of a lock, the one locked.
        markers: It is asked for where one of these holds; always if there is none.
        needs_torch: Whether it requires torch; ``None`` if the file does not say.
    """

    name: str
    versions: SpecifierSet
    markers: tuple[Marker, ...] = ()
    needs_torch: bool | None = None

    def is_for(self, python: str) -> bool:
        """Return whether it is asked for on Linux with a Python, e.g. ``3.12``."""
        where: dict[str, str | AbstractSet[str]] = {
            "python_version": python, "python_full_version": f"{python}.0", "extra": "",
            "implementation_name": "cpython", "platform_python_implementation": "CPython",
            "os_name": "posix", "sys_platform": "linux", "platform_system": "Linux",
            "platform_machine": "x86_64", "extras": frozenset(), "dependency_groups": frozenset(),
        }  # fmt: skip
        return not self.markers or any(marker.evaluate(where) for marker in self.markers)


@dataclass(slots=True)
class Dependencies:
    """What a file or an environment asks for.

    Attributes:
        place: Where it was read.
        packages: In the order of the file.
        pythons: The Pythons allowed.
        unread: Lines that name a folder, a file or a repository: what is there is not known.
    """

    place: str
    packages: list[Dependency] = field(default_factory=list)
    pythons: SpecifierSet = field(default_factory=SpecifierSet)
    unread: list[str] = field(default_factory=list)

    def of(self, name: str, python: str) -> list[Dependency]:
        """Return what is asked for of a package with a Python."""
        return [one for one in self.packages if one.name == name and one.is_for(python)]


def read_dependencies(path: Path) -> Dependencies:
    """Return what a file, an environment, or the first of ``FILES`` in a folder asks for.

    Raises:
        SpecError: If it cannot be read, is of another tool, or breaks its format.
    """
    if path.is_dir():
        inside = next((path / name for name in FILES if (path / name).is_file()), None)
        if inside is None or (path / "pyvenv.cfg").is_file():
            return _environment(path)
        path = inside
    if path.name == "pyproject.toml":
        return _project(path, read_toml(path, _READS))
    if path.name == "uv.lock":
        return _uv(path, read_toml(path, _READS))
    if re.fullmatch(r"pylock(\.[^.]+)?\.toml", path.name):
        return _pylock(path, read_toml(path, _READS))
    if path.suffix in (".txt", ".in"):
        found = Dependencies(str(path))
        _requirements(path, found, seen=set())
        return found
    what = "no file of dependencies that ivhl reads" if path.exists() else "does not exist"
    raise SpecError(f"{path}: {what}", hint=f"{_READS}; {_EXPORT}")


def installed(paths: Iterable[str], place: str) -> Dependencies:
    """Return the packages of an environment, by the folders that Python imports from."""
    found = Dependencies(place)
    for one in distributions(path=[*paths]):
        with suppress(FileNotFoundError):  # half of an installation
            if "Name" in one.metadata and "Version" in one.metadata:
                name, versions = canonicalize_name(one.metadata["Name"]), _exactly(one.version)
                found.packages.append(Dependency(name, versions, (), _requires_torch(one)))
    return found


def _exactly(version: str) -> SpecifierSet:
    version = version.partition("+")[0]  # a build of torch, e.g. 2.15.0+cpu
    try:
        return SpecifierSet(f"=={version}")
    except InvalidSpecifier:  # of a package older than PEP 440
        return SpecifierSet(f"==={version}")


def _requires_torch(one: Distribution) -> bool:
    for text in one.requires or ():
        try:
            needed = Requirement(text)
        except InvalidRequirement:
            continue
        of_an_extra = needed.marker is not None and "extra" in str(needed.marker)
        if canonicalize_name(needed.name) == "torch" and not of_an_extra:
            return True
    return False


def _environment(folder: Path) -> Dependencies:
    packages = sorted(folder.glob("lib/python3*/site-packages"))
    if not packages:
        raise SpecError(f"{folder}: has no file of dependencies, no packages", hint=_READS)
    found = installed(map(str, packages), str(folder))
    found.pythons = SpecifierSet(f"=={packages[-1].parent.name.removeprefix('python')}.*")
    return found


def _requirement(text: Any, place: str) -> Dependency:  # noqa: ANN401  (of a file)
    try:
        asked = Requirement(text)
    except (InvalidRequirement, TypeError, AttributeError) as error:
        rule = str(error).splitlines()[0]
        raise SpecError(
            f"{place}: must be a requirement (got {str(text)[:80]!r}): {rule}",
            hint="e.g. timm>=1.0; python_version < '3.13'",
        ) from error
    markers = () if asked.marker is None else (asked.marker,)
    return Dependency(canonicalize_name(asked.name), asked.specifier, markers)


def _requirements(path: Path, found: Dependencies, *, seen: set[Path]) -> None:
    """Read a file of pip: https://pip.pypa.io/en/stable/reference/requirements-file-format/."""
    if path.resolve() in seen:
        return
    seen.add(path.resolve())
    for number, line in _lines(path):
        further, url = _FURTHER.fullmatch(line), _URL.match(line)
        named = _EGG.search(line) if url else None
        if further:
            _requirements(path.parent / further[1], found, seen=seen)
        elif url and named is None:
            found.unread.append(re.sub(r"//[^/@\s]+@", "//", line))  # without a token
        elif named or not line.startswith("-"):  # other options say how to install
            text = named[1] if named else re.split(r"\s--", line)[0]
            found.packages.append(_requirement(text, f"{path}:{number}"))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line; a backslash continues a line."""
    try:
        text = read_plain(path, _LARGEST).decode("utf-8-sig")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}", hint=_READS) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: must be UTF-8: {error}", hint=_READS) from error
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        part = re.sub(r"(^|\s)#.*", "", line)
        first = first or number
        whole += part.removesuffix("\\")
        if not part.endswith("\\"):
            if whole.strip():
                yield first, whole.strip()
            whole, first = "", 0
    if whole.strip():
        yield first, whole.strip()


def _project(path: Path, raw: dict[str, Any]) -> Dependencies:
    project = raw.get("project")
    if not isinstance(project, dict) or not isinstance(project.get("dependencies"), list):
        raise SpecError(f"{path}: has no list project.dependencies", hint=_EXPORT)
    found = Dependencies(str(path), pythons=_pythons(path, project))
    found.packages += [
        _requirement(text, f"{path}: project.dependencies") for text in project["dependencies"]
    ]
    return found


def _pythons(path: Path, table: dict[str, Any]) -> SpecifierSet:
    asked = table.get("requires-python", "")
    try:
        return SpecifierSet(asked)
    except (InvalidSpecifier, AttributeError, TypeError) as error:
        raise SpecError(
            f"{path}: requires-python: must be as '>=3.11' (got {str(asked)[:80]!r})", hint=_READS
        ) from error


def _uv(path: Path, raw: dict[str, Any]) -> Dependencies:
    if raw.get("version") != 1:
        raise SpecError(
            f"{path}: version: must be 1, a lock of uv (got {str(raw.get('version'))[:80]!r})",
            hint="uv export --format pylock.toml",
        )
    found = Dependencies(str(path), pythons=_pythons(path, raw))
    try:
        for package in raw.get("package", ()):
            name, source = canonicalize_name(package["name"]), package["source"]
            if {"editable", "virtual"} & source.keys():
                continue  # the project itself, and the members of its workspace
            needed = {one["name"] for one in package.get("dependencies", ())}
            markers = tuple(map(Marker, package.get("resolution-markers", ())))
            versions = _exactly(package["version"]) if "version" in package else SpecifierSet()
            found.packages.append(Dependency(name, versions, markers, "torch" in needed))
    except (KeyError, TypeError, AttributeError, InvalidMarker) as error:
        raise SpecError(
            f"{path}: is no lock that uv wrote: {type(error).__name__}: {error}",
            hint="uv lock writes it again",
        ) from error
    return found


def _pylock(path: Path, raw: dict[str, Any]) -> Dependencies:
    try:
        lock = Pylock.from_dict(raw)
    except PylockValidationError as error:
        raise SpecError(f"{path}: is no pylock.toml: {error}", hint=_READS) from error
    found = Dependencies(str(path), pythons=lock.requires_python or SpecifierSet())
    for package in lock.packages:
        needed = {one.get("name") for one in package.dependencies or ()}
        found.packages.append(
            Dependency(
                canonicalize_name(package.name),
                SpecifierSet() if package.version is None else _exactly(str(package.version)),
                () if package.marker is None else (package.marker,),
                "torch" in needed if package.dependencies is not None else None,
            )
        )
    return found
