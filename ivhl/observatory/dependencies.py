"""Read what a project depends on: requirements, pyproject.toml, uv.lock, pylock.toml, environments.

Offline, and nothing is installed. Formats: pip's requirements files, PEP 621, PEP 751, version 1 of
uv's lock, metadata of installed packages.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, reduce
from importlib.metadata import Distribution, distributions
from operator import and_
from typing import TYPE_CHECKING, Any, Final

from packaging.markers import InvalidMarker, Marker
from packaging.pylock import Pylock, PylockValidationError
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from ivhl.errors import SpecError
from ivhl.matrix.spec import read_plain, read_toml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from pathlib import Path

# In a folder, the first of these that says what is asked for.
FILES: Final = ("uv.lock", "pylock.toml", "pyproject.toml", "requirements.txt")
_READS: Final = f"it reads {', '.join(FILES)}, and environments"
_EXPORT: Final = "export requirements.txt: poetry export, pdm export, pipenv requirements"
_COMPUTED: Final = "its build computes them: uv pip compile pyproject.toml -o requirements.txt"
# Options of pip that name a further file.
_FURTHER: Final = re.compile(r"(-r|-c|--requirement\b|--constraint\b)\s*=?\s*(\S.*)")
_URL: Final = re.compile(
    r"-e\b|--editable\b|[\w+.-]+://|git\+|\.|/|\w:\\|[\w.-]+/|[^\s;]+\.(?:whl|zip|tar\.\w+)\b"
)
_EGG: Final = re.compile(r"#(?:.*&)?egg=([\w.-]+)")
_BUILD: Final = re.compile(r"(?<=\d)\+[\w.]+")  # e.g. 2.15.0+cpu; the records do not tell builds
_LARGEST: Final = 32 << 20  # bytes of a lock
_MOST_FILES: Final = 100


@dataclass(frozen=True, slots=True)
class Dependency:
    """A package that a project asks for, or that its lock or environment has.

    Attributes:
        name: As PyPI writes it in addresses.
        versions: The allowed versions; the locked version of a lock.
        pythons: It is asked for on Linux with these; ``None`` for all.
        needs_torch: Whether it requires torch; ``None`` if the file does not say.
    """

    name: str
    versions: SpecifierSet
    pythons: AbstractSet[str] | None = None
    needs_torch: bool | None = None


@dataclass(slots=True)
class Dependencies:
    """The dependencies of a file or an environment.

    Attributes:
        place: Where it was read.
        packages: In the order of the file.
        pythons: The Pythons allowed.
        unread: Lines that name a folder, a file or a repository: what is there is not known.
        limits: What else holds for packages that are asked for, and for torch.
    """

    place: str
    packages: list[Dependency] = field(default_factory=list)
    pythons: SpecifierSet = field(default_factory=SpecifierSet)
    unread: list[str] = field(default_factory=list)
    limits: list[Dependency] = field(default_factory=list)

    def versions(self, name: str, python: str) -> SpecifierSet | None:
        """Return the versions of a package that all lines allow; ``None`` if none asks for it."""
        asked, limits = (
            [o for o in group if o.name == name and (o.pythons is None or python in o.pythons)]
            for group in (self.packages, self.limits)
        )
        if not asked and not (limits and name == "torch"):
            return None
        return reduce(and_, (one.versions for one in (*asked, *limits)), SpecifierSet())


def read_dependencies(path: Path, pythons: Collection[str]) -> Dependencies:
    """Return what a file, an environment, or the first of ``FILES`` in a folder asks for.

    Args:
        path: The file or folder.
        pythons: Minor versions for which markers are evaluated, on Linux with an x86-64 CPU.

    Raises:
        SpecError: If it cannot be read, is of another tool, or breaks its format.
    """
    if path.is_dir():
        return _folder(path, pythons)
    if path.name == "pyproject.toml":
        return _project(path, read_toml(path, _READS), pythons)
    if path.name == "uv.lock":
        return _uv(path, read_toml(path, _READS), pythons)
    if re.fullmatch(r"pylock(\.[^.]+)?\.toml", path.name):
        return _pylock(path, read_toml(path, _READS), pythons)
    if path.suffix in (".txt", ".in"):
        found = Dependencies(str(path))
        _requirements(path, found, found.packages, pythons, seen=set())
        return found
    what = "no file of dependencies that ivhl reads" if path.exists() else "does not exist"
    raise SpecError(f"{path}: {what}", hint=f"{_READS}; {_EXPORT}")


def installed(paths: Iterable[str], place: str) -> Dependencies:
    """Return the packages of an environment, by the folders that Python imports from."""
    found = Dependencies(place)
    for one in distributions(path=[*paths]):
        with suppress(FileNotFoundError, UnicodeDecodeError):  # half of an installation
            if "Name" in one.metadata and "Version" in one.metadata:
                name, versions = canonicalize_name(one.metadata["Name"]), _exactly(one.version)
                found.packages.append(Dependency(name, versions, None, _requires_torch(one)))
    return found


def _folder(path: Path, pythons: Collection[str]) -> Dependencies:
    named = () if (path / "pyvenv.cfg").is_file() else FILES
    for one in (path / name for name in named if (path / name).is_file()):
        if one.name != "pyproject.toml" or "dependencies" in _table(one, read_toml(one, _READS)):
            return read_dependencies(one, pythons)
    for folder in (path, path / ".venv"):
        for packages in sorted(folder.glob("lib/python3*/site-packages"), reverse=True):
            found = installed([str(packages)], str(folder))
            version = packages.parent.name.removeprefix("python").rstrip("t")
            found.pythons = SpecifierSet(f"=={version}.*")
            return found
    raise SpecError(f"{path}: has no list of dependencies and no packages", hint=_READS)


def _exactly(version: str) -> SpecifierSet:
    public = _BUILD.sub("", version)
    for text in (f"=={public}", f"==={public}"):  # the second, of what is older than PEP 440
        with suppress(InvalidSpecifier):
            return SpecifierSet(text)
    return SpecifierSet()


@cache
def _marker(text: str) -> Marker:
    return Marker(text)


def _holds(marker: Marker, python: str) -> bool:
    """Return whether a marker holds on Linux with any patch of a Python."""
    where: dict[str, str | AbstractSet[str]] = {
        "python_version": python, "extra": "", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "os_name": "posix", "sys_platform": "linux",
        "platform_system": "Linux", "platform_machine": "x86_64", "extras": frozenset(),
        "dependency_groups": frozenset(),
    }  # fmt: skip
    patches = (f"{python}.0", f"{python}.99")
    return any(marker.evaluate(where | {"python_full_version": one}) for one in patches)


def _holding(marker: Marker | None, pythons: Collection[str]) -> AbstractSet[str] | None:
    return None if marker is None else {one for one in pythons if _holds(marker, one)}


def _requires_torch(one: Distribution) -> bool:
    for text in one.requires or ():
        with suppress(InvalidRequirement):
            needed = Requirement(text)
            of_an_extra = needed.marker is not None and "extra" in str(needed.marker)
            if canonicalize_name(needed.name) == "torch" and not of_an_extra:
                return True
    return False


def _shown(text: object) -> str:
    """Return a text of a file for a message, without tokens in addresses."""
    return re.sub(r"(?<=//)[^/@\s]+@|\?[^\s#]+", "", str(text))[:80]


def _requirement(text: Any, place: str, pythons: Collection[str]) -> Dependency:  # noqa: ANN401
    try:
        asked = Requirement(text)
        versions = SpecifierSet(_BUILD.sub("", str(asked.specifier)))
    except (InvalidRequirement, TypeError, AttributeError) as error:
        rule = str(error).splitlines()[0]
        raise SpecError(
            f"{place}: must be a requirement (got {_shown(text)!r}): {rule}",
            hint="e.g. timm>=1.0; python_version < '3.13'",
        ) from error
    if asked.url is not None and (wheel := _wheel(asked.url)):
        versions = wheel.versions
    return Dependency(canonicalize_name(asked.name), versions, _holding(asked.marker, pythons))


def _wheel(url: str) -> Dependency | None:
    """Return what the file name of a wheel says."""
    name = re.sub(r"[?#].*", "", url).rpartition("/")[2].replace("%2B", "+")
    with suppress(InvalidWheelFilename):
        package, version, *_ = parse_wheel_filename(name)
        return Dependency(package, _exactly(str(version)))
    return None


def _requirements(
    path: Path,
    found: Dependencies,
    into: list[Dependency],
    pythons: Collection[str],
    *,
    seen: set[str],
) -> None:
    """Read a file of pip: https://pip.pypa.io/en/stable/reference/requirements-file-format/."""
    place = os.path.realpath(path)
    if place in seen:
        return
    seen.add(place)
    if len(seen) > _MOST_FILES:
        raise SpecError(f"{path}: more than {_MOST_FILES} files name each other", hint=_READS)
    for number, line in _lines(path):
        if further := _FURTHER.fullmatch(line):
            limits = found.limits if further[1] in ("-c", "--constraint") else into
            _requirements(path.parent / further[2], found, limits, pythons, seen=seen)
        elif _URL.match(line):
            if named := _EGG.search(line):
                into.append(_requirement(named[1], f"{path}:{number}", pythons))
            elif wheel := _wheel(line):
                into.append(wheel)
            else:
                found.unread.append(_shown(line))
        elif not line.startswith("-"):  # other options say how to install
            text = re.split(r"\s--", line)[0]
            into.append(_requirement(text, f"{path}:{number}", pythons))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line; a backslash continues a line."""
    try:
        data = read_plain(path, _LARGEST)
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}", hint=_READS) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: must be UTF-8: {error}", hint=_READS) from error
    whole, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        part = re.sub(r"(^|\s)#.*", "", line)
        first = first or number
        whole += part.removesuffix("\\")
        if not part.endswith("\\"):
            if whole.strip():
                yield first, whole.strip()
            whole, first = "", 0


def _table(path: Path, raw: dict[str, Any]) -> dict[str, Any]:
    project = raw.get("project", {})
    if not isinstance(project, dict):
        raise SpecError(f"{path}: project: must be a table", hint=_READS)
    return project


def _project(path: Path, raw: dict[str, Any], pythons: Collection[str]) -> Dependencies:
    project = _table(path, raw)
    asked = project.get("dependencies", [] if project else None)
    if not isinstance(asked, list) or "dependencies" in project.get("dynamic", ()):
        hint = _EXPORT if not project else _COMPUTED
        raise SpecError(f"{path}: has no list project.dependencies", hint=hint)
    place = f"{path}: project.dependencies"
    packages = [_requirement(text, place, pythons) for text in asked]
    return Dependencies(str(path), packages, _pythons(path, project))


def _pythons(path: Path, table: dict[str, Any]) -> SpecifierSet:
    asked = table.get("requires-python", "")
    try:
        return SpecifierSet(asked)
    except (InvalidSpecifier, AttributeError, TypeError) as error:
        raise SpecError(
            f"{path}: requires-python: must be as '>=3.11' (got {_shown(asked)!r})", hint=_READS
        ) from error


def _uv(path: Path, raw: dict[str, Any], pythons: Collection[str]) -> Dependencies:
    if str(raw.get("version")) != "1":
        raise SpecError(
            f"{path}: version: must be 1, of a lock of uv (got {_shown(raw.get('version'))!r})",
            hint="uv lock --upgrade writes it again; or uv export --format pylock.toml",
        )
    found = Dependencies(str(path), pythons=_pythons(path, raw))
    try:
        packages = [*raw.get("package", ())]
        on = {python: _reached(packages, python) for python in pythons}
        for number, package in enumerate(packages):
            if not _is_root(package):
                needed = {one["name"] for one in package.get("dependencies", ())}
                found.packages.append(
                    Dependency(
                        canonicalize_name(package["name"]),
                        _exactly(package["version"]) if "version" in package else SpecifierSet(),
                        {python for python in pythons if number in on[python]},
                        "torch" in needed,
                    )
                )
    except (KeyError, TypeError, AttributeError, InvalidMarker) as error:
        rule = str(error).splitlines()[0]
        raise SpecError(
            f"{path}: is no lock that uv wrote: {type(error).__name__}: {rule}",
            hint="uv lock writes it again",
        ) from error
    return found


def _is_root(package: dict[str, Any]) -> bool:
    """Return whether it is the project itself, or a member of its workspace."""
    return bool({"editable", "virtual"} & package["source"].keys())


def _reached(packages: list[dict[str, Any]], python: str) -> set[int]:
    """Return the numbers of the packages of a lock that a Python gets, without extras and groups."""
    by_name: dict[str, list[int]] = defaultdict(list)
    for number, package in enumerate(packages):
        markers = package.get("resolution-markers", ())
        if not markers or any(_holds(_marker(text), python) for text in markers):
            by_name[package["name"]].append(number)
    roots = [number for number, package in enumerate(packages) if _is_root(package)]
    todo: list[tuple[int, tuple[str, ...]]] = [(n, ()) for n in roots or range(len(packages))]
    seen = set(todo)
    while todo:
        number, extras = todo.pop()
        package = packages[number]
        optional = package.get("optional-dependencies", {})
        for one in (
            *package.get("dependencies", ()),
            *(d for e in extras for d in optional.get(e, ())),
        ):
            if "marker" in one and not _holds(_marker(one["marker"]), python):
                continue
            for other in by_name[one["name"]]:
                following = other, tuple(one.get("extra", ()))
                is_same = one.get("version") in (None, packages[other].get("version"))
                if is_same and following not in seen:
                    seen.add(following)
                    todo.append(following)
    return {number for number, _ in seen}


def _pylock(path: Path, raw: dict[str, Any], pythons: Collection[str]) -> Dependencies:
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
                _holding(package.marker, pythons),
                "torch" in needed if package.dependencies is not None else None,
            )
        )
    return found
