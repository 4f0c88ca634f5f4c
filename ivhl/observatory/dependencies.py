"""Read what a project depends on: requirements, pyproject.toml, uv.lock, pylock.toml, environments.

Offline, and nothing is installed. Formats: pip's requirements files, PEP 621, PEP 751, version 1 of
uv's lock, metadata of installed packages.
"""

from __future__ import annotations

import codecs
import os
import re
import shlex
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, reduce
from importlib.metadata import Distribution, distributions
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from packaging.markers import Marker
from packaging.pylock import Pylock, PylockValidationError
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from ivhl.errors import SpecError, UnknownNameError
from ivhl.matrix.spec import read_plain, read_toml
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.wording import some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

# In a folder, the first of these that says what is asked for.
FILES: Final = ("uv.lock", "pylock.toml", "pyproject.toml", "requirements.txt")
_READS: Final = f"ivhl reads {', '.join(FILES)}, and environments"
_UTF8: Final = "save the file as UTF-8; in PowerShell: pip freeze | Out-File -Encoding utf8 FILE"
_EXPORT: Final = "export requirements.txt: poetry export, pdm export, pipenv requirements"
_CONDA: Final = "name the environment that conda made: ivhl ready $CONDA_PREFIX"
# Files of other tools, and how to ask about them.
_OTHERS: Final = {
    "poetry.lock": "poetry export --output requirements.txt",
    "pdm.lock": "pdm export --output requirements.txt",
    "Pipfile.lock": "pipenv requirements > requirements.txt",
    "Pipfile": "pipenv requirements > requirements.txt",
    "setup.py": "uv pip compile setup.py --output-file requirements.txt",
    "setup.cfg": "uv pip compile setup.cfg --output-file requirements.txt",
    "environment.yml": _CONDA,
    "environment.yaml": _CONDA,
    "conda-lock.yml": _CONDA,
    "pixi.lock": _CONDA,
}
_COMPUTED: Final = "its build computes them: uv pip compile pyproject.toml -o requirements.txt"
# Options of pip that name a further file. Files at an address, or in a variable, are not read.
_FURTHER: Final = re.compile(
    r"(-r|-c|--requirement\b|--constraint\b)\s*=?\s*(?!.*(?:://|\$\{[A-Z0-9_]+\}))(\S.*)"
)
_URL: Final = re.compile(
    r"-[rce]|--(?:requirement|constraint|editable)\b|[\w+.-]+://|git\+|\.|/|\w:\\|[\w.-]+/|[^\s;]+\.(?:whl|zip|tar\.\w+)\b"
)
# A name of a package, with or without versions; no path.
_LIBRARY: Final = re.compile(r"[\w-]+([<>=!~]=?[^/]*)?")
# Extras and dependency groups of a project, as pip writes them: ``.[gpu,test]``.
_CHOSEN: Final = re.compile(r"(?P<path>.+)\[(?P<names>[\w.,\s-]+)\]")
# What pip replaces in each line.
_VARIABLE: Final = re.compile(r"\$\{[A-Z0-9_]+\}")
# How pip decodes a file: by its mark (that of UTF-16 begins that of UTF-32), or by a comment.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CODING: Final = re.compile(rb"(?:[^\n]*\n)?#[^\n]*?coding[:=]\s*(?P<name>[-\w.]+)")
_EGG: Final = re.compile(r"#(?:.*&)?egg=([\w.-]+)")
_BUILD: Final = re.compile(r"(?<=\d)\+[\w.]+")  # e.g. 2.15.0+cpu; the records do not tell builds
_LARGEST: Final = 32 << 20  # bytes of a lock
_MOST_FILES: Final = 100
_NAMED: Final = 10
_ASKED: Final = "project.dependencies"


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


@dataclass
class Dependencies:
    """The dependencies of a file or an environment.

    Attributes:
        place: Where it was read.
        packages: In the order of the file.
        pythons: The Pythons allowed.
        unread: Lines that name a folder, a file or a repository: what is there is not known.
        limits: What else holds for packages that are asked for, and for torch.
        notes: A sentence for each line or group that was left out.
    """

    place: str
    packages: list[Dependency] = field(default_factory=list)
    pythons: SpecifierSet = field(default_factory=SpecifierSet)
    unread: list[str] = field(default_factory=list)
    limits: list[Dependency] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def on_linux(self) -> list[Dependency]:
        """The packages that any Python on Linux gets."""
        return [one for one in self.packages if one.pythons is None or one.pythons]

    def allows(self, python: str) -> bool:
        """Return whether the project allows a Python, of which any patch will do."""
        patches = (f"{python}.{patch}" for patch in range(100))
        return any(self.pythons.contains(one, prereleases=True) for one in patches)

    @cached_property
    def _by_name(self) -> list[dict[str, list[Dependency]]]:
        """The packages and the limits, each line once."""
        groups = self.packages, self.limits
        return [grouped_by(dict.fromkeys(group), lambda one: one.name) for group in groups]

    def versions(self, name: str, python: str) -> SpecifierSet | None:
        """Return the versions of a package that all lines allow; ``None`` if none asks for it."""
        asked, limits = (
            [o for o in group.get(name, ()) if o.pythons is None or python in o.pythons]
            for group in self._by_name
        )
        if not asked and not (limits and name == "torch"):
            return None
        return reduce(and_, (one.versions for one in (*asked, *limits)), SpecifierSet())


def read_dependencies(path: Path, pythons: Collection[str]) -> Dependencies:
    """Return what a file, an environment, or the first of ``FILES`` in a folder asks for.

    Args:
        path: The file or folder; of a pyproject.toml also with extras and groups, ``.[gpu,test]``.
        pythons: Minor versions for which markers are evaluated, on Linux with an x86-64 CPU.

    Raises:
        SpecError: If it cannot be read, is of another tool, or breaks its format.
    """
    named = _CHOSEN.fullmatch(str(path))
    if named and not os.path.lexists(path):
        return _with_chosen(Path(named["path"]), named["names"].split(","), pythons)
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
    what = "no file of dependencies that ivhl reads"
    try:
        path.stat()
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        what = "does not exist" if missing else f"cannot be read: {error.strerror}"
    other = _CONDA if path.suffix in (".yml", ".yaml") else f"{_READS}; {_EXPORT}"
    if _LIBRARY.fullmatch(str(path)):
        text = shlex.quote(str(path))
        other = f"to ask about a library: echo {text} > one.txt; ivhl ready one.txt"
    raise SpecError(f"{path}: {what}", hint=_OTHERS.get(path.name, other))


def _with_chosen(path: Path, names: Iterable[str], pythons: Collection[str]) -> Dependencies:
    path = path / "pyproject.toml" if path.is_dir() else path
    if path.name != "pyproject.toml":
        raise SpecError(
            f"{path}: extras and groups in brackets are those of a pyproject.toml",
            hint=f"ivhl ready 'pyproject.toml[{','.join(names)}]'",
        )
    chosen = {canonicalize_name(name.strip()) for name in names}
    return _project(path, read_toml(path, _READS), pythons, chosen)


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
    other = next((name for name in _OTHERS if (path / name).is_file()), "")
    if other:
        raise SpecError(f"{path}: has {other}, which ivhl does not read", hint=_OTHERS[other])
    if (path / "pyproject.toml").is_file():  # it says what it lacks
        return read_dependencies(path / "pyproject.toml", pythons)
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
    return None if marker is None else frozenset(o for o in pythons if _holds(marker, o))


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
        holding = _holding(asked.marker, pythons)
    except (ValueError, TypeError, AttributeError) as error:  # packaging's are of ValueError
        rule = str(error).splitlines()[0]
        raise SpecError(
            f"{place}: must be a requirement (got {_shown(text)!r}): {rule}",
            hint="e.g. timm>=1.0; python_version < '3.13'",
        ) from error
    if asked.url is not None and (wheel := _wheel(asked.url)):
        versions = wheel.versions
    return Dependency(canonicalize_name(asked.name), versions, holding)


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
    named_by: str = "",
) -> None:
    """Read a file of pip: https://pip.pypa.io/en/stable/reference/requirements-file-format/."""
    place = os.path.realpath(path)
    if place in seen:
        return
    seen.add(place)
    if len(seen) > _MOST_FILES:
        raise SpecError(f"{path}: more than {_MOST_FILES} files refer to each other", hint=_READS)
    for number, line in _lines(path, named_by):
        if further := _FURTHER.fullmatch(line):
            limits = found.limits if further[1] in ("-c", "--constraint") else into
            further_path = path.parent / further[2].strip("'\"")
            named_by = f"{path}:{number}: "
            _requirements(further_path, found, limits, pythons, seen=seen, named_by=named_by)
        elif _URL.match(line):
            if named := _EGG.search(line):
                into.append(_requirement(named[1], f"{path}:{number}", pythons))
            elif wheel := _wheel(line):
                into.append(wheel)
            else:
                found.unread.append(_shown(line))
        elif not line.startswith("-"):  # other options say how to install
            text = _without_variables(re.split(r"\s--", line)[0], f"{path}:{number}", found)
            into += [_requirement(text, f"{path}:{number}", pythons)] if text else []


def _without_variables(text: str, place: str, found: Dependencies) -> str:
    """Return a requirement without versions and markers of the environment; empty if it has no name.

    pip puts in what the environment holds, which may be secret: ivhl neither reads nor prints it.
    """
    if not _VARIABLE.search(text):
        return text
    if re.match(r"[\w.-]+(\[[\w.,\s-]*\])?\s*@", text):  # an address: its versions are not read
        return text
    name = re.match(r"[\w.-]+(?![\w.$-])", text)
    if not name:
        found.unread.append(_shown(text))
        return ""
    variables = ", ".join(dict.fromkeys(_VARIABLE.findall(text)))
    found.notes.append(f"{place}: {variables} is not read: any version of {name[0]} counts")
    marker = text.partition(";")[2]
    return name[0] if not marker or _VARIABLE.search(marker) else f"{name[0]}; {marker}"


def _lines(path: Path, named_by: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line; a backslash continues a line."""
    try:
        text = _decoded(read_plain(path, _LARGEST))
    except OSError as error:
        rule = f"{named_by}{path}: cannot be read: {error.strerror}"
        raise SpecError(rule, hint=_READS) from error
    except (UnicodeError, LookupError) as error:
        raise SpecError(f"{path}: must be UTF-8: {error}", hint=_UTF8) from error
    if "\0" in text:
        place = f"{path}:{text[: text.index(chr(0))].count(chr(10)) + 1}"
        raise SpecError(f"{place}: has a byte 0: no text, or UTF-16 without its mark", hint=_UTF8)
    whole, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        part = re.sub(r"(^|\s)#.*", "", line)
        first = first or number
        whole += part.removesuffix("\\")
        if not part.endswith("\\"):
            if whole.strip():
                yield first, whole.strip()
            whole, first = "", 0


def _decoded(data: bytes) -> str:
    """Return the text of a file of pip, which without a mark or a comment is UTF-8.

    Source: https://github.com/pypa/pip/blob/25.0/src/pip/_internal/utils/encoding.py
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.removeprefix(mark).decode(encoding)
    named = _CODING.match(data)
    return data.decode(named["name"].decode() if named else "utf-8")


def _table(path: Path, raw: dict[str, Any]) -> dict[str, Any]:
    project = raw.get("project", {})
    if not isinstance(project, dict):
        raise SpecError(f"{path}: project: must be a table", hint=_READS)
    return project


def _project(
    path: Path,
    raw: dict[str, Any],
    pythons: Collection[str],
    chosen: AbstractSet[str] = frozenset(),
) -> Dependencies:
    """Read a pyproject.toml, with the extras and groups that are chosen, and those that these name.

    Source: PEP 621, PEP 735.
    """
    project = _table(path, raw)
    asked = project.get("dependencies", [] if project or chosen else None)
    computed = project.get("dynamic")
    if asked is not None and not isinstance(asked, list):
        raise SpecError(
            f"{path}: {_ASKED}: must be a list (got {_shown(asked)!r})",
            hint='e.g. dependencies = ["timm>=1.0"]',
        )
    if asked is None or (isinstance(computed, list) and "dependencies" in computed):
        hint = _EXPORT if not project else _COMPUTED
        raise SpecError(f"{path}: has no list project.dependencies", hint=hint)
    found = Dependencies(str(path), pythons=_pythons(path, project))
    lists = _lists(path, project, "optional-dependencies", "extra")
    lists |= _lists(path, raw, "dependency-groups", "group")
    names = {key.partition(" ")[2] for key in lists}
    if unknown := sorted(chosen - names):
        raise UnknownNameError(f"extra or group of {path}", unknown[0], names)
    lists[_ASKED] = asked
    todo = [_ASKED, *(key for key in lists if key.partition(" ")[2] in chosen)]
    for key in todo:  # which grows
        if key not in lists:
            word, _, name = key.partition(" ")
            raise UnknownNameError(f"{word} in {path}", name, names)
        for one in lists[key]:
            package, more = _of_list(one, f"{path}: {key}", pythons, project.get("name"))
            found.packages += package
            todo += [name for name in more if name not in todo]
    left = [key for key in lists if key not in todo]
    found.notes += [] if chosen else _left_out(left, path)
    return found


def _left_out(keys: Sequence[str], path: Path) -> list[str]:
    """Return a note on extras and groups that are not read, e.g. ``extra gpu``; or none."""
    first = keys[0].partition(" ")[2] if keys else ""
    adds = f"ivhl ready '{path}[{first}]' adds {first}"
    return [f"not read: {some(keys, _NAMED)}; {adds}"] if keys else []


def _lists(path: Path, table: dict[str, Any], key: str, word: str) -> dict[str, list[Any]]:
    found = table.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(one, list) for one in found.values()):
        raise SpecError(f"{path}: {key}: must be a table of lists", hint=_READS)
    return {f"{word} {canonicalize_name(name)}": texts for name, texts in found.items()}


def _of_list(
    one: object, place: str, pythons: Collection[str], own: object
) -> tuple[list[Dependency], list[str]]:
    """Return the package that an entry asks for; or the lists that it includes, of its project."""
    if isinstance(one, dict) and isinstance(group := one.get("include-group"), str):
        return [], [f"group {canonicalize_name(group)}"]
    package = _requirement(one, place, pythons)
    if package.name != canonicalize_name(str(own)):
        return [package], []
    is_asked = package.pythons is None or package.pythons
    extras = sorted(Requirement(str(one)).extras) if is_asked else []
    return [], [f"extra {canonicalize_name(extra)}" for extra in extras]


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
            f"{path}: version: must be 1, of a lock of uv "
            f"(got {_shown(raw.get('version', 'none'))!r})",
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
                        frozenset(python for python in pythons if number in on[python]),
                        "torch" in needed,
                    )
                )
            elif "." in package["source"].values():
                left = [f"extra {name}" for name in package.get("optional-dependencies", ())]
                left += [f"group {name}" for name in package.get("dev-dependencies", ())]
                found.notes += _left_out(left, path.parent / "pyproject.toml")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
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
        holding = [_holding(package.marker, pythons) for package in lock.packages]
    except (PylockValidationError, ValueError) as error:
        raise SpecError(f"{path}: is no pylock.toml: {error}", hint=_READS) from error
    found = Dependencies(str(path), pythons=lock.requires_python or SpecifierSet())
    for package, on in zip(lock.packages, holding, strict=True):
        needed = {one.get("name") for one in package.dependencies or ()}
        found.packages.append(
            Dependency(
                canonicalize_name(package.name),
                SpecifierSet() if package.version is None else _exactly(str(package.version)),
                on,
                "torch" in needed if package.dependencies is not None else None,
            )
        )
    return found
