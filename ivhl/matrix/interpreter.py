"""Find the Pythons of the matrix on this machine."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from ivhl.errors import InterpreterError, LockError, counted
from ivhl.matrix.spec import read_plain
from ivhl.matrix.uv import run_uv

if TYPE_CHECKING:
    from collections.abc import Iterator

# The base executable: a Python in a virtual environment or behind a shim may be removed or changed.
_PROBE = """
import json, platform, sys, sysconfig
print(json.dumps({
    "executable": getattr(sys, "_base_executable", None) or sys.executable,
    "full_version": platform.python_version(),
    "minor": "%d.%d" % sys.version_info[:2],
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "implementation": sys.implementation.name,
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that was run and reported its version.

    Attributes:
        path: The real executable, neither a shim nor in a virtual environment.
        full_version: E.g. ``3.12.1``; with ``t`` for a free-threaded Python.
    """

    path: Path
    full_version: str


def find_interpreter(root: Path, python: str, *, install: bool = True) -> Interpreter:
    """Return the interpreter of a Python of the matrix.

    Searches PATH, pyenv and the Pythons that uv manages; if all fail, uv downloads it.

    Args:
        root: Root of the project; versions in its ``.python-version`` come first in pyenv.
        python: As in the matrix, e.g. ``3.12`` or ``3.14t``.
        install: Whether uv may download it.

    Raises:
        InterpreterError: If it is not found; lists the places and what was found there.
    """
    looked: list[str] = []
    tried: set[Path] = set()
    for place, candidate in _candidates(root, python, looked, install=install):
        if candidate.resolve() in tried:
            continue
        tried.add(candidate.resolve())
        found, why_not = _probe(root, candidate, python)
        if found is not None:
            return found
        looked.append(f"{place}: {candidate}: {why_not}")
    raise InterpreterError(
        f"no Python {python} on this machine; looked here:\n"
        + "\n".join(f"  {line}" for line in looked),
        hint=f"install it, e.g. `uv python install {python}` or `pyenv install {python}`, or "
        f"put python{python} on PATH",
    )


def find_free_threaded(root: Path, python: str) -> Interpreter:
    """Return the interpreter of a free-threaded Python, or another free-threaded one on PATH.

    Any of them tells uv the ABI to lock for; uv takes the version as an argument.

    Raises:
        InterpreterError: If none is found, and uv cannot download the wanted one.
    """
    folders = [Path(text) for text in os.environ.get("PATH", "").split(os.pathsep) if text]
    names = {path.name for folder in folders for path in folder.glob("python3.*t")}
    for other in (python, *sorted(name.removeprefix("python") for name in names)):
        with suppress(InterpreterError):
            return find_interpreter(root, other, install=False)
    return find_interpreter(root, python)


def _candidates(
    root: Path, python: str, looked: list[str], *, install: bool
) -> Iterator[tuple[str, Path]]:
    """Yield executables to try, cheapest first; add places without any to ``looked``."""
    shims = [versions.with_name("shims") for versions in _pyenv_folders()]
    parts = dict.fromkeys(os.environ.get("PATH", "").split(os.pathsep))
    folders = [Path(part) for part in parts if part]

    def on_path(name: str) -> Iterator[tuple[str, Path]]:
        paths = (folder / name for folder in folders if folder not in shims)
        return (("PATH", path) for path in paths if os.access(path, os.X_OK))

    named = list(on_path(f"python{python}"))
    yield from named
    if not named:
        looked.append(f"PATH: no python{python} in its {counted(len(folders), 'folder')}")
    for versions in _pyenv_folders():
        in_pyenv = list(_pyenv_versions(root, versions, python))
        yield from (("pyenv", path) for path in in_pyenv)
        if not in_pyenv:
            looked.append(f"pyenv: no version {python} in {versions}")
    yield from on_path("python3")
    yield from _from_uv(root, python, looked)
    if install:
        # Without --no-bin, uv puts a link into the user's ~/.local/bin.
        installed, printed = _uv(["python", "install", "--no-bin", python], root)
        if installed:
            yield from _from_uv(root, python, looked)
        else:
            looked.append(f"uv: cannot fetch it: {printed}")


def _from_uv(root: Path, python: str, looked: list[str]) -> Iterator[tuple[str, Path]]:
    arguments = ["python", "find", "--managed-python", "--no-python-downloads", "--no-project"]
    found, printed = _uv([*arguments, python], root)
    if found:
        yield "uv", Path(printed)
    else:
        looked.append(f"uv: {printed}")


def _uv(arguments: list[str], root: Path) -> tuple[bool, str]:
    """Return whether uv succeeded, and the path or the reason that it printed."""
    try:
        process = run_uv(arguments, cwd=root)
    except LockError as error:
        return False, str(error)
    if process.returncode == 0:
        return True, process.stdout.strip()
    lines = [
        line.strip().removeprefix("error: ").removeprefix("cause: ")
        for line in process.stderr.splitlines()
        if line.strip()
    ]
    # The first line is the error, the last one its cause; those between are intermediate causes.
    printed = (
        dict.fromkeys((lines[0], lines[-1])) if lines else {f"exit {process.returncode}": None}
    )
    return False, "; ".join(printed)


def _pyenv_folders() -> Iterator[Path]:
    # Not by the pyenv command: its shims take half a second each and work only where a
    # .python-version lists the version, and it may be missing although its Pythons are installed.
    folders = [Path(text) for text in [os.environ.get("PYENV_ROOT", "")] if text]
    for folder in dict.fromkeys([*folders, Path.home() / ".pyenv"]):
        yield folder / "versions"


def _pyenv_versions(root: Path, versions: Path, python: str) -> Iterator[Path]:
    """Yield this Python's executables: first those in ``.python-version``, then the newest first."""
    pinned = root / ".python-version"
    text = read_plain(pinned).decode(errors="replace") if pinned.is_file() else ""
    wanted = text.split()
    there: list[str] = []
    with suppress(OSError):  # none, or those of somebody else
        there = [path.name for path in versions.iterdir()]
    fitting: dict[str, Version] = {}
    for name in there:
        try:
            version = Version(name.removesuffix("t"))
        except InvalidVersion:  # a pyenv virtual environment, or another implementation
            continue
        minor = f"{version.major}.{version.minor}" + ("t" if name.endswith("t") else "")
        if minor == python:
            fitting[name] = version
    for name in sorted(fitting, key=lambda n: (n in wanted, fitting[n]), reverse=True):
        executable = versions / name / "bin" / "python"
        if os.access(executable, os.X_OK):
            yield executable


def _probe(root: Path, executable: Path, python: str) -> tuple[Interpreter | None, str]:
    """Run the executable; return it if it is the wanted Python, else why not."""
    try:
        process = subprocess.run(
            [executable, "-I", "-c", _PROBE],
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, "does not answer"
    except OSError as error:
        return None, f"does not run: {error.strerror}"
    try:
        facts = json.loads(process.stdout)
    except ValueError:
        printed = process.stderr.strip().splitlines() or [f"exit {process.returncode}"]
        return None, f"does not run: {printed[0].strip()}"
    flag = "t" if facts["free_threaded"] else ""
    if facts["implementation"] != "cpython":
        return None, f"is {facts['implementation']}, not CPython"
    if facts["minor"] + flag != python:
        return None, f"is Python {facts['full_version']}{flag}"
    return Interpreter(
        path=Path(facts["executable"]).resolve(), full_version=facts["full_version"] + flag
    ), ""
