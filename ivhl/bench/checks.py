"""What must hold before a run, and what `ivhl doctor` says of it.

That is the device, the disk, the memory, the programs, and the machine's name in the results.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.asv.machine import known_machine, machine_differences, observe_machine_file
from ivhl.errors import InterpreterError, LockError, ResultsError, SpecError
from ivhl.git import git_version, is_shallow
from ivhl.machine.compiler import observe_compiler
from ivhl.machine.disk import existing
from ivhl.machine.gpu import has_nvidia_driver
from ivhl.machine.memory import memory_limit
from ivhl.machine.observation import Observation
from ivhl.machine.program import ProgramError, first_line, run_program
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.uv import run_uv
from ivhl.workload import Case, check_memory, fits, needs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from ivhl.bench.request import Request
    from ivhl.measure.settings import Settings
    from ivhl.records.record import Machine


# Disk space that the records of a run need. Checked before measuring: a full disk loses results.
ROOM_BYTES = 8 * 2**20


def check_device(device: str) -> None:
    """Raise if the device has no driver: its failures would look like PyTorch's.

    Raises:
        SpecError: If the device is ``cuda`` and no NVIDIA driver is installed.
    """
    if device == "cuda" and not has_nvidia_driver():
        raise SpecError(
            "--device cuda: this machine has no NVIDIA driver",
            hint="leave out --device to measure on the CPU",
        )


def check_room(results: Path) -> None:
    """Create the results folder.

    Raises:
        ResultsError: If it cannot be written, or its disk has less than ``ROOM_BYTES`` free.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(results).free
    except OSError as error:
        raise ResultsError(
            f"cannot create the results folder: {error}", hint="choose another one with --results"
        ) from error
    if not os.access(results, os.W_OK):
        raise ResultsError(f"{results}: not writable", hint="choose another folder with --results")
    if free < ROOM_BYTES:
        raise ResultsError(
            f"{results} has {free / 2**20:.1f} MiB free; a run needs {ROOM_BYTES >> 20} MiB",
            hint="free space, or choose another folder with --results; nothing was measured yet",
        )


def those_that_fit(
    request: Request, cases: tuple[Case, ...], console: Console
) -> tuple[Case, ...]:
    """Return the cases that fit into memory; print a note that names the others.

    Raises:
        SpecError: If a case that was requested by name does not fit.
    """
    limit = request.effort.memory_limit or memory_limit()
    if request.selection.workloads or request.selection.size:
        check_memory(cases, limit)
    if too_large := [case for case in cases if not fits(case, limit)]:
        console.print(f"left out, not enough memory: {needs_of(too_large, limit)}", soft_wrap=True)
    return tuple(case for case in cases if fits(case, limit))


def check_machine(settings: Settings) -> None:
    """Raise if another machine has results under this name: differences would look like changes.

    This happens when machines are replaced under one host name, or a script fixes the name.

    Raises:
        SpecError: If the results under that name come from another processor or system.
    """
    known = known_machine(Path(settings.results), settings.machine.name)
    different = machine_differences(known, settings.machine)
    if different:
        folder = Path(settings.results) / settings.machine.name
        raise SpecError(
            f"{folder} has results of another machine named {settings.machine.name!r}: "
            + "; ".join(different),
            hint="give this machine its own name with --machine NAME",
        )


_HEADER = "import os, sysconfig; print(os.path.join(sysconfig.get_paths()['include'], 'Python.h'))"
_PATIENCE_S = 60


def observe_tools(root: Path, pythons: Sequence[str]) -> Iterator[Observation]:
    """Yield observations about uv and its cache, git, the C++ compiler and the Pythons.

    Args:
        root: Root of the project.
        pythons: Pythons to look for.
    """
    yield _uv_cache(root)
    yield _uv(root)
    yield _git(root)
    yield observe_compiler()
    for python in pythons:
        yield _python(root, python)


def observe_names(results: Path, machine: Machine) -> Iterator[Observation]:
    """Yield observations about this machine's name in the results, and asv's list of machines.

    Args:
        results: Folder of the results.
        machine: This machine, under its name in the results.
    """
    known = known_machine(results, machine.name)
    different = machine_differences(known, machine)
    if different:
        yield Observation(
            "machine name",
            "wrong",
            f"{results} has another machine named {machine.name!r}: {'; '.join(different)}",
            "give this machine its own name with --machine NAME",
        )
    else:
        seen = "has this machine as" if known else "has no machine named"
        yield Observation("machine name", "ok", f"{results} {seen} {machine.name!r}")
    yield observe_machine_file()


def _uv_cache(root: Path) -> Observation:
    try:
        done = run_uv(["cache", "dir"], cwd=root, timeout_s=_PATIENCE_S)
    except LockError as error:
        return Observation("uv cache", "wrong", str(error), error.hint)
    if done.returncode or not done.stdout.strip():
        seen = f"uv does not print its cache folder: {first_line(done.stderr)}"
        return Observation("uv cache", "wrong", seen, "see uv cache dir")
    cache = Path(done.stdout.strip())
    places = [existing(path) for path in (cache, root / ".asv" / "env")]
    if places[0].stat().st_dev == places[1].stat().st_dev:
        return Observation("uv cache", "ok", f"{cache}, on the file system of the cells")
    hint = f"set UV_CACHE_DIR to {root / '.uv-cache'}, or to another folder on that file system"
    seen = f"{cache}, not on the file system of the cells: uv copies each file instead of linking"
    return Observation("uv cache", "warning", seen, hint)


def _uv(root: Path) -> Observation:
    try:
        done = run_uv(["--version"], cwd=root, timeout_s=_PATIENCE_S)
    except LockError as error:
        return Observation("uv", "wrong", str(error), error.hint)
    if done.returncode:
        seen = f"exit status {done.returncode}: {first_line(done.stderr)}"
        return Observation("uv", "wrong", seen, "pip install --force-reinstall uv")
    return Observation("uv", "ok", done.stdout.strip())


def _git(root: Path) -> Observation:
    try:
        seen = git_version(root)
        shallow = is_shallow(root)
    except SpecError as error:
        return Observation("git", "wrong", str(error), error.hint)
    if shallow:
        hint = "git fetch --unshallow: import and gate look for commits and locks in the history"
        return Observation("git", "warning", f"{seen}, a shallow clone", hint)
    return Observation("git", "ok", seen)


def _python(root: Path, python: str) -> Observation:
    check = f"Python {python}"
    try:
        found = find_interpreter(root, python, install=False)
    except InterpreterError:
        hint = f"uv python install {python}; else ivhl bench lets uv fetch it"
        return Observation(check, "warning", "not found on PATH, in pyenv or by uv", hint)
    seen = f"{found.full_version}, {found.path}"
    if not _has_header(found.path):
        return Observation(
            check,
            "wrong",
            f"{seen}, without Python.h, which Inductor needs",
            f"apt-get install python{python}-dev, or uv python install {python} and put that one "
            "first on PATH",
        )
    return Observation(check, "ok", seen)


def _has_header(interpreter: Path) -> bool:
    try:
        header = run_program([str(interpreter), "-I", "-c", _HEADER]).stdout.strip()
    except ProgramError:
        return False
    return Path(header).is_file()
