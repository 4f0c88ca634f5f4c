"""Read which Pythons and PyTorch releases a code base allows, without building or importing it."""

from __future__ import annotations

import email
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ivhl.errors import SpecError
from ivhl.init.source import literals_of_setup, load_pyproject
from ivhl.matrix.locks import marker_environment
from ivhl.matrix.spec import read_plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_REQUIREMENTS: Final = "requirements.txt"
_EXTRA: Final = re.compile(r"\bextra\s*==\s*['\"]([^'\"]+)")


class _Stated(NamedTuple):
    """What one file says; ``None`` where it says nothing."""

    place: str
    name: str = ""
    version: str = ""
    python: str | None = None
    requires: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a code base requires of Python and PyTorch.

    Attributes:
        name: Of its distribution; of its folder if no file says.
        version: Empty if no file says.
        base: Folder of the files that say so; that of the code if there is none.
        python: ``requires-python``.
        torch: Its requirements of torch, those of extras left out.
        text: Both in one line, with the files that say so.
        notes: What else to know.
    """

    name: str
    version: str
    base: Path
    python: SpecifierSet
    torch: tuple[Requirement, ...]
    text: str
    notes: tuple[str, ...]

    def holds(self, python: str, torch: str, platform: str) -> bool:
        """Return whether it allows a cell, on any patch release of the Python."""
        plain_python = python.removesuffix("t")
        # The patch release is that of the machine: any will do.
        patches = (f"{plain_python}.{n}" for n in (0, 99))
        if not any(self.python.contains(patch, prereleases=True) for patch in patches):
            return False
        environment = marker_environment(python, platform)
        return all(
            one.specifier.contains(torch, prereleases=Version(torch).is_prerelease)
            for one in self.torch
            if one.marker is None or one.marker.evaluate(environment)
        )


def read_allowed(path: Path) -> Allowed:
    """Return what a code base declares: a project's folder, a package installed, or one unpacked.

    Read are ``[project]`` of ``pyproject.toml``, the metadata of a distribution, literals of
    ``setup.py`` and ``requirements.txt``, in this order; what one lacks the next one says.

    Raises:
        SpecError: If one cannot be read, or a requirement in it does not parse.
    """
    base, found = path if path.is_dir() else path.parent, tuple[_Stated, ...]()
    while not (found := tuple(_stated(base, path))):
        # In a package: its project is above it, or its metadata beside it.
        inside = (base / "__init__.py").is_file() or base.name == "src"
        if not inside or base.resolve().parent == base.resolve():
            break
        base = base.resolve().parent
    of_python = next((one for one in found if one.python is not None), None)
    of_torch = next((one for one in found if one.requires is not None), None)
    notes = []
    torch: list[Requirement] = []
    extras: set[str] = set()
    for text in of_torch.requires or () if of_torch else ():
        assert of_torch is not None  # noqa: S101  (it has the requirements)
        one = _requirement(text, of_torch.place)
        if canonicalize_name(one.name) != "torch":
            continue
        if one.marker is not None and (extra := _EXTRA.search(str(one.marker))):
            extras.add(extra[1])
        else:
            torch.append(one)
    if one_of := next((one for one in torch if one.url), None):
        notes.append(
            f"requires torch from an address ({one_of.url}): any release counts as allowed"
        )
    if extras and not torch:
        notes.append(
            f"requires torch in extras only, which do not count: {', '.join(sorted(extras))}"
        )
    python = SpecifierSet()
    if of_python is not None and of_python.python:
        try:
            python = SpecifierSet(of_python.python)
        except InvalidSpecifier as error:
            raise SpecError(
                f"{of_python.place}: requires-python: must be a version specifier "
                f"(got {of_python.python!r})",
                hint='write it as PEP 440 has it, e.g. ">=3.12"',
            ) from error
    home = path if path.is_dir() else path.parent
    return Allowed(
        name=next((one.name for one in found if one.name), home.resolve().name),
        version=next((one.version for one in found if one.version), ""),
        base=base if found else home,
        python=python,
        torch=tuple(torch),
        text=_text(python, torch, of_python, of_torch),
        notes=tuple(notes),
    )


def _text(
    python: SpecifierSet,
    torch: Sequence[Requirement],
    of_python: _Stated | None,
    of_torch: _Stated | None,
) -> str:
    one = f"Python {python}" if python else "any Python"
    two = ", ".join(map(str, torch)) or "any torch"
    places = [stated.place for stated in (of_python, of_torch) if stated is not None]
    where = ", ".join(dict.fromkeys(places))
    return f"{one}, {two} ({where or 'no file of it says'})"


def _requirement(text: str, place: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise SpecError(
            f"{place}: a requirement does not parse: {reason} (got {text!r})", hint="correct it"
        ) from error


def _stated(base: Path, path: Path) -> Iterator[_Stated]:
    """Yield what each file in a folder says."""
    pyproject = base / "pyproject.toml"
    if pyproject.is_file():
        yield from _of_pyproject(pyproject)
    for metadata in (base / "PKG-INFO", *_dist_infos(base, path)):
        if metadata.is_file():
            yield _of_metadata(metadata, base)
    if (base / "setup.py").is_file() and (literals := literals_of_setup(base / "setup.py")):
        name, requires, python = literals
        yield _Stated("setup.py", name, "", python or None, tuple(requires))
    if (base / _REQUIREMENTS).is_file():
        yield _Stated(_REQUIREMENTS, requires=tuple(_lines_about_torch(base / _REQUIREMENTS)))


def _of_pyproject(path: Path) -> Iterator[_Stated]:
    project = load_pyproject(path).project
    if raw := tomllib.loads(read_plain(path).decode()).get("project"):
        yield _Stated(
            path.name,
            project.name,
            str(raw.get("version", "")),
            project.requires_python or None,
            None if "dependencies" in project.dynamic else tuple(project.dependencies),
        )


def _dist_infos(base: Path, path: Path) -> Iterator[Path]:
    """Yield the metadata that lies beside a package, or in an unpacked wheel."""
    found = sorted([*base.glob("*.dist-info/METADATA"), *base.glob("*.egg-info/PKG-INFO")])
    inside = path.resolve().relative_to(base.resolve()).parts
    for metadata in found:
        record = metadata.with_name("RECORD")
        if (
            inside and record.is_file()
        ):  # of all that are installed there, the one with the package
            text = read_plain(record).decode(errors="replace")
            if re.search(rf"^{re.escape(inside[0])}[/,]", text, re.MULTILINE):
                yield metadata
        elif len(found) == 1:
            yield metadata


def _of_metadata(path: Path, base: Path) -> _Stated:
    about = email.message_from_bytes(read_plain(path))
    requires = about.get_all("Requires-Dist")
    dynamic = [text.strip().lower() for text in about.get_all("Dynamic") or ()]
    # A source distribution may leave out what building it tells.
    says = requires is not None or (path.name == "METADATA" and "requires-dist" not in dynamic)
    return _Stated(
        path.relative_to(base).as_posix(),
        about["Name"] or "",
        about["Version"] or "",
        about["Requires-Python"],
        tuple(requires or ()) if says else None,
    )


def _lines_about_torch(path: Path) -> Iterator[str]:
    """Yield the lines of a requirements file that name torch."""
    try:
        lines = read_plain(path).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {error}", hint=f"correct {path.name}") from error
    for line in lines:
        text = re.sub(r"(^|\s)#.*", "", line).strip().removesuffix("\\").strip()
        if re.match(r"torch(?![\w.-])", text, re.IGNORECASE):
            yield re.sub(r"\s--hash=.*", "", text)
