"""What requirements add to a cell: resolved without an install, locked, and laid over the cell.

An overlay is a virtual environment of the cell's interpreter that holds only what is added. A
``.pth`` file in it adds the cell's packages after its own, so bytecode and compiled headers of the
cell serve all of its overlays, and a package in another version than the cell's comes first.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import tempfile
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

import packaging
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ivhl.errors import LockError, SpecError
from ivhl.matrix.environment import uv_or_fail
from ivhl.matrix.locks import LockState, index_options
from ivhl.matrix.uv import run_uv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


LOCK: Final = "ivhl-overlay.txt"
# Sorts after the ``.pth`` files of packages, whose folders then come before the cell's.
_PTH: Final = "zz_ivhl_cell.pth"
# Runs in the cell's Python, which judges its own tags; its packages are left alone.
_TAGS: Final = """
import sys
sys.path.append(sys.argv[1])
from packaging.tags import sys_tags
print(*sys_tags())
"""
_PIN: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?:==(?P<version>\S+)| @ \S+) --hash=sha256:[0-9a-f]{64}"
)

# uv's words, of 0.13; tests compare with the real uv.
_UNKNOWN: Final = "was not found in the package registry"
_NO_SOLUTION: Final = "No solution found"
_PYTHON: Final = re.compile(r"current Python version \((?P<version>[\d.]+)")
_WHO: Final = r"(?P<who>[A-Za-z0-9][\w.-]*)(?P<versions>[=<>!~]\S*)?"
_RANGE: Final = r"(?:torch|Python)[=<>!~]\S+"
_ASKS: Final = re.compile(
    rf"{_WHO} (?:depends? on|requires) (?:one of: )?(?P<ranges>{_RANGE}(?: {_RANGE})*)"
)
_YOU_ASK: Final = re.compile(r"you require (?:torch==\S+ and )?(?P<what>torch[<>!~]\S+)")
_OF_TORCH: Final = re.compile(r"torch\S* depends? on (?P<what>\S+)")
_NO_WHEEL: Final = re.compile(rf"{_WHO} ha(?:s|ve) no (?:usable )?wheels")
_LONGEST: Final = 400


class UnavailableError(Exception):
    """A cell that cannot exist.

    Attributes:
        kind: ``pinned out`` if a requirement forbids this torch or this Python, ``no wheel`` if a
            distribution has none for this Python; empty if requirements contradict each other.
    """

    def __init__(self, message: str, kind: Literal["pinned out", "no wheel", ""] = "") -> None:
        super().__init__(message)
        self.kind = kind


def read_requirement(place: str, text: object) -> Requirement:
    """Read the requirement of a package, which is no option and no file of them.

    Raises:
        SpecError: If it is none, or no text; names the place.
    """
    if not isinstance(text, str):
        raise SpecError(
            f"{place}: a requirement must be a string (got {text!r})", hint='e.g. "timm>=1.0"'
        )
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise SpecError(
            f"{place}: must name a package (got {text!r}): {str(error).splitlines()[0]}",
            hint="e.g. timm>=1.0",
        ) from error


def overlay_lock(
    python: Path, lock: LockState, requirements: Sequence[str], until: dt.date | None = None
) -> str:
    """Return the lock of what requirements add to a cell: a line for each distribution.

    A package of the cell stays as it is where the requirements allow that. The newest release of
    each named package decides: uv would go back to one from before its authors knew of any limit.
    An older one is taken only where the newest needs a newer torch, Python or other package.

    Args:
        python: Interpreter of the cell.
        lock: Lock of the cell.
        requirements: E.g. ``timm>=1.0``.
        until: The last day whose uploads count, for what the cell lacks.

    Raises:
        UnavailableError: If the requirements forbid this torch or this Python.
        SpecError: If one is no requirement.
        LockError: If a package does not exist, or the registry does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="ivhl-overlay-") as name:
        uv = _Resolver(Path(name), python, lock, until)
        wanted = [str(read_requirement("--with", one)) for one in requirements]
        asked = [f"torch=={lock.cell.torch}", *wanted]
        alone = ("--universal", "--no-deps", "--python-version", "3.8")
        newest = _versions(uv.lines(wanted, *alone)[0])
        newest.pop("torch", None)  # is the cell's
        found, refusal = uv.lines(asked, seed=lock.packages)
        picked = _versions(found)
        if refusal or any(picked.get(one, v) < v for one, v in newest.items()):
            pins = [f"{one}=={v}" for one, v in newest.items()]
            of_newest = uv.lines([*asked, *pins])[1] or refusal
            _raise_refused(lock, newest, of_newest, must=bool(refusal))
        there = {f"{pin.name}=={pin.version}" for pin in lock.pins}
        added = [line for line in found if line not in there]
        return "".join(f"{line}\n" for line in uv.hashed(added))


def _raise_refused(
    lock: LockState, newest: Mapping[str, Version], refusal: str, *, must: bool
) -> None:
    """Raise what uv says against the newest releases, unless older ones are as good.

    Args:
        lock: Lock of the cell.
        newest: Newest release of each named package.
        refusal: What uv says; empty if nothing.
        must: Whether no older release can be had.

    Raises:
        UnavailableError: If the cell cannot exist.
        LockError: If the reason is another.
    """
    cell = lock.cell
    text = " ".join(line.strip() for line in refusal.splitlines())
    text = re.sub(r"Python (?=[=<>!~])", "Python", text)
    text = text.removeprefix("error: ").partition(" hint: ")[0]
    text = text.removeprefix(f"{_NO_SOLUTION} when resolving dependencies cause: ")
    if must and (_UNKNOWN in text or _NO_SOLUTION not in refusal):
        step = "check the name of the package" if _UNKNOWN in text else "read uv's message"
        raise LockError(f"{cell.id}: {text[:_LONGEST]}", hint=f"{step}, then try again")
    found = _PYTHON.search(text)
    here = {"torch": cell.torch, "Python": found["version"] if found else cell.python}
    asks = [(one, _against(one["ranges"], here)) for one in _ASKS.finditer(text)]
    forbids = [one for one, against in asks if against == "too new"]
    if must and not forbids:
        forbids = [one for one, against in asks if against]
    if forbids:
        what = forbids[0]["ranges"].rstrip(",.")
        raise UnavailableError(
            f"pinned out: {_named(forbids[0], newest)} requires {what}", "pinned out"
        )
    if (missing := _NO_WHEEL.search(text)) and (must or not any(against for _, against in asks)):
        raise UnavailableError(
            f"no wheel: {_named(missing, newest)} has none for Python {cell.python}", "no wheel"
        )
    if must and (found := _YOU_ASK.search(text) or _OF_TORCH.search(text)):
        what = found["what"].rstrip(",.")
        raise UnavailableError(f"pinned out: {what} is required", "pinned out")
    if must:
        raise UnavailableError(text[:_LONGEST])


def _named(match: re.Match[str], newest: Mapping[str, Version]) -> str:
    version = newest.get(canonicalize_name(match["who"]))
    return f"{match['who']} {version}" if version else f"{match['who']}{match['versions'] or ''}"


def _against(ranges: str, here: Mapping[str, str]) -> Literal["too new", "too old", ""]:
    """Return what keeps the torch or the Python of a cell out of ranges that uv lists."""
    found = set[str]()
    for one in ranges.split():
        what, specifiers = re.match(r"([a-zA-Z]+)(.*?)[,.]*$", one).groups()  # type: ignore[union-attr]
        version = Version(here[what].removesuffix("t"))
        failing = [
            x for x in SpecifierSet(specifiers) if not x.contains(version, prereleases=True)
        ]
        if not failing:
            return ""
        is_old = all(
            x.operator == ">" or Version(x.version.removesuffix(".*")) > version for x in failing
        )
        found.add("too old" if is_old else "too new")
    return "too old" if found == {"too old"} else "too new"


def _versions(lines: Sequence[str]) -> dict[str, Version]:
    """Return the newest version of each package; a universal answer has one for each Python."""
    found: dict[str, Version] = {}
    for one in map(Requirement, lines):
        for specifier in one.specifier:
            name, version = canonicalize_name(one.name), Version(specifier.version)
            found[name] = max(version, found.get(name, version))
    return found


class _Resolver:
    """Resolves for the Python of a cell.

    Args:
        folder: An empty folder.
        python: Interpreter of the cell.
        lock: Lock of the cell.
        until: The last day whose uploads count, for what the cell lacks.
    """

    def __init__(self, folder: Path, python: Path, lock: LockState, until: dt.date | None) -> None:
        self._folder = folder
        self._python = python
        self._index = index_options(lock.cell, of_next=lock.of_next)
        if until is not None:
            tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
            self._index += ("--exclude-newer", str(until))
            for name in lock.packages:
                self._index += ("--exclude-newer-package", f"{name}={tomorrow}")

    def lines(
        self, asked: Sequence[str], *options: str, seed: Mapping[str, str] | None = None
    ) -> tuple[list[str], str]:
        """Return a line for each distribution, the versions of ``seed`` preferred, or a refusal."""
        out = self._folder / "found.txt"
        out.write_text("".join(f"{n}=={v}\n" for n, v in (seed or {}).items()), encoding="utf-8")
        refusal = self._compile(out, asked, *options)
        return [] if refusal else out.read_text(encoding="utf-8").splitlines(), refusal

    def hashed(self, lines: Sequence[str]) -> Iterator[str]:
        """Yield each line with the hash of the wheel that this Python takes.

        Raises:
            LockError: If the registry has no hash of it.
        """
        out = self._folder / "pylock.toml"
        refusal = self._compile(out, lines, "--no-deps", "--format", "pylock.toml")
        found = {} if refusal else tomllib.loads(out.read_text(encoding="utf-8"))
        packages = {canonicalize_name(one["name"]): one for one in found.get("packages", ())}
        tags = self._tags()
        for line in lines:
            package = packages.get(canonicalize_name(Requirement(line).name), {})
            digest = _file(package, tags).get("hashes", {}).get("sha256")
            if not digest:
                raise LockError(
                    f"{line}: the registry has no hash of its wheel{refusal and ': '}{refusal}",
                    hint="name another release, or see the index settings of uv",
                )
            yield f"{line} --hash=sha256:{digest}"

    def _compile(self, out: Path, asked: Sequence[str], *options: str) -> str:
        (self._folder / "asked.in").write_text("\n".join(asked) + "\n", encoding="utf-8")
        done = run_uv(
            [
                *("pip", "compile", "asked.in", "--output-file", out.name, "--quiet"),
                *("--no-header", "--no-annotate", "--only-binary", ":all:"),
                *("--python", str(self._python), *self._index, *options),
            ],
            cwd=self._folder,
            project=Path.home(),
        )
        return done.stderr.strip() or "uv failed" if done.returncode else ""

    def _tags(self) -> list[str]:
        packages = str(Path(packaging.__file__).parents[1])
        command = [str(self._python), "-I", "-S", "-c", _TAGS, packages]
        return subprocess.check_output(command, text=True).split()


def _file(package: Mapping[str, Any], tags: Sequence[str]) -> dict[str, Any]:
    """Return the distribution file of a package of a ``pylock.toml`` that fits best."""
    by_tag: dict[str, dict[str, Any]] = {}
    for wheel in package.get("wheels", ()):
        name = wheel.get("name") or unquote(wheel.get("url") or wheel["path"]).rpartition("/")[2]
        by_tag |= dict.fromkeys(map(str, parse_wheel_filename(name)[3]), wheel)
    return next((by_tag[tag] for tag in tags if tag in by_tag), package.get("archive", {}))


def lay_over(cell: Path, lock: LockState, text: str, folder: Path) -> dict[str, str]:
    """Make the overlay of a cell from its lock, and return the versions that it holds.

    Args:
        cell: Folder of the cell.
        lock: Lock of the cell.
        text: Lock of the overlay.
        folder: Where to make it.

    Raises:
        LockError: If the text is no lock, or a distribution would hide a package of the cell.
        CellError: If uv fails.
    """
    for line in text.splitlines():
        if not _PIN.fullmatch(line):
            raise LockError(
                f"{LOCK}: each line must be NAME==VERSION --hash=sha256:... (got {line!r})",
                hint="use the lock that `ivhl` wrote",
            )
    python = (cell / "bin" / "python").resolve()
    uv_or_fail(Path.home(), "venv", "--no-project", "--python", str(python), str(folder))
    (folder / LOCK).write_text(text, encoding="utf-8")
    uv_or_fail(
        Path.home(), "pip", "install", "--python", str(folder), "--no-deps",
        "--require-hashes", "--only-binary", ":all:",
        *index_options(lock.cell, of_next=lock.of_next), "-r", str(folder / LOCK),
    )  # fmt: skip
    (folder / LOCK).write_text(text, encoding="utf-8")  # a wheel may have a file of this name
    ours, theirs = _packages(folder), _packages(cell)
    added = {str(canonicalize_name(one.name)): one.version for one in _installed(ours)}
    _join(ours, theirs, added)
    (ours / _PTH).write_text(f"import site; site.addsitedir({str(theirs)!r})\n", encoding="utf-8")
    (folder / "inductor").symlink_to(cell / "inductor")  # compiled headers and C++
    _copy_scripts(cell / "bin", folder / "bin")
    return added


def _installed(packages: Path) -> list[Distribution]:
    return list(distributions(path=[str(packages)]))


def check_python(folder: Path, requirements: Sequence[str], python: str) -> None:
    """Refuse a named package whose upper limit on Python uv does not heed.

    Raises:
        UnavailableError: If one forbids this Python.
    """
    named = {canonicalize_name(Requirement(one).name) for one in requirements}
    for one in _installed(_packages(folder)):
        allowed = str(one.metadata.json.get("requires_python", ""))
        if canonicalize_name(one.name) in named and not SpecifierSet(allowed).contains(python):
            why = f"pinned out: {one.name} {one.version} requires Python{allowed}"
            raise UnavailableError(why, "pinned out")


def _packages(folder: Path) -> Path:
    (packages,) = folder.glob("lib/python3*/site-packages")
    return packages


def _join(ours: Path, theirs: Path, added: Mapping[str, str]) -> None:
    """Make names that stand in both places whole, as one folder of packages would have them.

    Python imports a package from one place only if either has an ``__init__.py``, and the ``nvidia``
    of older releases has one without code. What the cell has of it is linked.

    Raises:
        LockError: If a distribution would hide a package of the cell that it does not replace.
    """
    ours_have, theirs_have = ({_module(one.name) for one in x.iterdir()} for x in (ours, theirs))
    modules = ours_have & theirs_have
    if not modules:
        return
    kept, replaced = [], set[str]()
    for one in _installed(theirs):
        files = [file for file in one.files or () if _module(file.parts[0]) in modules]
        if canonicalize_name(one.name) in added:
            replaced |= {_module(file.parts[0]) for file in files}
        else:
            kept += files
    for module in sorted(modules - replaced):
        if not _is_namespace(theirs / module) or not _is_namespace(ours / module):
            owner = next(
                f"{one.name} {one.version}"
                for one in _installed(ours)
                if any(_module(file.parts[0]) == module for file in one.files or ())
            )
            raise LockError(
                f"{owner}: would hide {module} of the cell",
                hint="remove it from the requirements",
            )
    for file in kept:
        if not (link := ours / file).exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(theirs / file)


def _module(name: str) -> str:
    return name.partition(".")[0]


def _is_namespace(place: Path) -> bool:
    """Return whether a folder has no ``__init__.py``, or one that only says it is a namespace."""
    init = place / "__init__.py"
    lines = init.read_bytes().splitlines() if init.is_file() else []
    said = (b"#", b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)")
    return place.is_dir() and all(not x.strip() or x.startswith(said) for x in lines)


def _copy_scripts(theirs: Path, ours: Path) -> None:
    """Copy entry points of the cell, such as ``torchrun``, for the Python of the overlay."""
    for script in theirs.iterdir():
        place = ours / script.name
        if script.is_file() and not place.exists():
            place.write_bytes(script.read_bytes().replace(bytes(theirs), bytes(ours)))
            place.chmod(0o755)
