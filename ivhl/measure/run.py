"""One run in one cell: its settings and the commands that repeat it."""

from __future__ import annotations

import shlex
import sys
import sysconfig
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.errors import SpecError
from ivhl.measure.effort import Effort
from ivhl.records.files import record_file
from ivhl.records.record import Cell

if TYPE_CHECKING:
    from ivhl.records.record import Machine
    from ivhl.workload import Case


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Settings of one run in one cell, which all its records share.

    Attributes:
        project: Name of the installed project.
        workloads: See ``ivhl.workload.load_workloads``.
        results: Folder with one folder per machine.
        scratch: Folder for caches and output during the run.
        repeat: Beginning of the command that repeats a case, without ``--workload`` etc.
        cache: Folder of the compile cache; ``None`` keeps nothing.
        shared: Folder of what all projects of the user share; ``None`` shares nothing.
        image: Digest of the image if this runs in a container, else ``None``.
        uncommitted: Whether the tree under test differs from the commit; ``None`` if unknown.
        project_path: Folder that holds the project at this commit where it is not installed;
            ``None`` where it is.
    """

    project: str
    commit: str
    workloads: str
    cell: Cell
    machine: Machine
    results: str
    scratch: str
    repeat: str
    effort: Effort = field(default_factory=Effort)
    cache: str | None = None
    shared: str | None = None
    image: str | None = None
    uncommitted: bool | None = None
    project_path: str | None = None

    @property
    def record_file(self) -> Path:
        """File for the records of this run."""
        return record_file(Path(self.results), self.machine.name, self.commit, self.cell.id)


def repeat_command(run: Run, case: Case) -> str:
    """Return the command that repeats this measurement."""
    words = [
        run.repeat,
        # People copy the command from a page into a shell.
        f"--workload {shlex.quote(case.workload.name)}",
        f"--size {shlex.quote(case.size)}",
        f"--variant {shlex.quote(case.variant.name)}",
    ]
    if case.mode is not None:
        words.append(f"--compile-mode {case.mode}")
    return " ".join([*words, *run.effort.options(), "--force"])


def this_cell() -> Cell:
    """Return this interpreter as an existing environment, which no lock describes.

    Raises:
        SpecError: If torch is not installed.
    """
    try:
        torch = version("torch").split("+")[0]
    except PackageNotFoundError:
        raise SpecError(
            "torch is not installed here", hint=f"{sys.executable} -m pip install torch"
        ) from None
    free_threaded = "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    python = f"{sys.version_info.major}.{sys.version_info.minor}{free_threaded}"
    return Cell(id=f"py{python}-torch{torch}", python=python, torch=torch, lock_sha256=None)
