"""What commands read of a project: its workloads, its releases, the folder of its results."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ivhl.errors import ResultsError, SpecError
from ivhl.matrix.project import MATRIX, load_project
from ivhl.matrix.spec import load_matrix
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted
from ivhl.workload import broken_benchmarks, load_workloads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.workload import Workload

_NAMED: Final = 50


def declared(root: Path) -> tuple[Workload, ...]:
    """Return the workloads of the project; name on standard error what does not import.

    Raises:
        SpecError: If the project is not valid, or no module of its benchmarks imports.
    """
    project = load_project(root)
    workloads = tuple(load_workloads(project.workloads))
    warn(f"left out: {broken}" for broken in broken_benchmarks(project.workloads))
    return workloads


def known_releases(root: Path) -> tuple[str, ...]:
    """Return the PyTorch releases of the matrix, oldest first; none if the matrix is invalid."""
    with suppress(SpecError):
        return load_matrix(root / MATRIX).releases("extended")
    return ()


def warn(problems: Iterable[object], *, every: bool = False) -> None:
    """Name on standard error what could not be read; of thousands of lines, the first ones."""
    console = Terminal(stderr=True, highlight=False, soft_wrap=True)
    texts = [str(problem) for problem in problems]
    shown = texts if every else texts[:_NAMED]
    if hidden := texts[len(shown) :]:
        shown.append(f"and {counted(len(hidden), 'more problem')}: ivhl results names all")
    for text in shown:
        console.print("warning:", end=" ", style="bold yellow")
        console.print(text)


def folder_to_write(given: Path) -> Path:
    """Return a folder without links in its path; one that links to itself is left as it is.

    ``Path.resolve`` raises there before Python 3.13, and what opens the folder says it better.
    """
    return Path(os.path.realpath(given))


def results_folder(given: Path | None, root: Path) -> Path:
    """Return the folder of the results; only the default one may be missing.

    Raises:
        ResultsError: If one is given that is no folder: a verdict over nothing would look like one.
    """
    if given is None:
        return root / "results"
    if not given.is_dir():
        raise ResultsError(
            f"--results: must be a folder (got {str(given)!r})",
            hint=f"the default is {root / 'results'}",
        )
    return given
