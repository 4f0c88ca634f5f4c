"""Check uv, git, the C++ compiler, the Pythons of the matrix and asv's machine files."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.asv.machine import known_machine, machine_differences
from ivhl.errors import InterpreterError, LockError
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.uv import run_uv
from ivhl.measure.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ivhl.records import Machine

# Inductor's requirements for a compiler: C++17, OpenMP and shared libraries.
_FLAGS = ("-x", "c++", "-std=c++17", "-shared", "-fPIC", "-fopenmp", "-")
_SOURCE = """\
#include <cmath>
#include <vector>
#include <omp.h>
extern "C" double f(double x) { return std::sqrt(x) + omp_get_max_threads(); }
"""
_HEADER = "import os, sysconfig; print(os.path.join(sysconfig.get_paths()['include'], 'Python.h'))"
_PATIENCE_S = 60


def look_at_tools(root: Path, pythons: Sequence[str]) -> Iterator[Finding]:
    """Yield findings about the programs that a run needs.

    Args:
        root: Root of the project.
        pythons: Pythons of the matrix.
    """
    yield _uv(root)
    yield _git(root)
    yield _compiler()
    for python in pythons:
        yield _python(root, python)


def look_at_names(results: Path, machine: Machine) -> Iterator[Finding]:
    """Yield findings about this machine's name in the results, and asv's list of machines.

    Args:
        results: Folder of the results.
        machine: This machine, under its name in the results.
    """
    known = known_machine(results, machine.name)
    different = machine_differences(known, machine)
    if different:
        yield Finding(
            "machine name",
            "wrong",
            f"{machine.name!r} is another machine's in {results}: {'; '.join(different)}",
            "give this machine its own name with --machine NAME",
        )
    else:
        told = "is this machine in" if known else "is new to"
        yield Finding("machine name", "ok", f"{machine.name!r} {told} {results}")
    path = Path.home() / ".asv-machine.json"
    if not path.exists():
        yield Finding("asv machine file", "ok", "none yet; ivhl bench writes it")
        return
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
        if there["version"] != 1:
            raise ValueError(f"version {there['version']}")  # noqa: TRY301  (reported below, with the others)
    except (OSError, ValueError, TypeError, KeyError) as error:
        seen = f"{path} cannot be read: {type(error).__name__}: {error}"
        yield Finding("asv machine file", "wrong", seen, f"rm {path}; ivhl bench writes it again")
    else:
        yield Finding("asv machine file", "ok", f"{path}, {len(there) - 1} names")


def _uv(root: Path) -> Finding:
    try:
        said = run_uv(["--version"], cwd=root, timeout_s=_PATIENCE_S)
    except LockError as error:
        return Finding("uv", "wrong", str(error), error.hint)
    if said.returncode:
        seen = _first(said.stderr) or f"exit status {said.returncode}"
        return Finding("uv", "wrong", seen, "pip install --force-reinstall uv")
    return Finding("uv", "ok", said.stdout.strip())


def _git(root: Path) -> Finding:
    version = _said(["git", "--version"])
    if isinstance(version, str):
        return Finding("git", "wrong", f"git: {version}", "install git (apt-get install git)")
    shallow = _said(["git", "-C", str(root), "rev-parse", "--is-shallow-repository"])
    if isinstance(shallow, str) or shallow.returncode:
        told = shallow if isinstance(shallow, str) else _first(shallow.stderr)
        return Finding("git", "wrong", f"{root}: {told}", "run this in a git clone of the project")
    seen = version.stdout.strip()
    if shallow.stdout.strip() == "true":
        seen += ", a shallow clone"
        hint = "git fetch --unshallow: import and gate look for commits and locks in the history"
        return Finding("git", "warning", seen, hint)
    return Finding("git", "ok", seen)


def _compiler() -> Finding:
    # As Inductor: the compiler in CXX, else g++.
    named = os.environ.get("CXX", "g++")
    hint = "install it (apt-get install g++), or name another one with CXX"
    words = shlex.split(named) or ["g++"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "f.so")
        done = _said([*words, *_FLAGS, "-o", str(library)], input_=_SOURCE)
        if isinstance(done, str):
            return Finding("C++ compiler", "wrong", f"{named}: {done}", hint)
        if done.returncode or not library.exists():
            seen = f"{named} cannot make a library with OpenMP: {_first(done.stderr)}"
            return Finding("C++ compiler", "wrong", seen, hint)
    version = _said([*words, "--version"])
    return Finding(
        "C++ compiler", "ok", named if isinstance(version, str) else _first(version.stdout)
    )


def _python(root: Path, python: str) -> Finding:
    check = f"Python {python}"
    try:
        found = find_interpreter(root, python, install=False)
    except InterpreterError:
        hint = f"uv python install {python}; else ivhl bench lets uv fetch it"
        return Finding(check, "warning", "not on PATH, in pyenv or among uv's", hint)
    seen = f"{found.full_version}, {found.path}"
    header = _said([str(found.path), "-I", "-c", _HEADER])
    path = "" if isinstance(header, str) else header.stdout.strip()
    if not Path(path).is_file():
        return Finding(
            check,
            "wrong",
            f"{seen}, without Python.h: Inductor compiles against it",
            f"apt-get install python{python}-dev, or uv python install {python} and that one first",
        )
    return Finding(check, "ok", seen)


def _said(
    command: Sequence[str], *, input_: str | None = None
) -> subprocess.CompletedProcess[str] | str:
    """Run a program; return its result, or why it could not be run."""
    try:
        return subprocess.run(
            command,
            input=input_ or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"does not end within {_PATIENCE_S} s"
    except OSError as error:
        return f"cannot be run: {error.strerror}"


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")
