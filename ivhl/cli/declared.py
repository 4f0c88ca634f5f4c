"""The workloads of a project for a command, with a warning for each module that is of no use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.matrix.project import load_project
from ivhl.tracker.terminal import Terminal
from ivhl.workload import broken_benchmarks, load_workloads

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.workload import Workload


def declared(root: Path) -> tuple[Workload, ...]:
    """Return the workloads of the project; name on standard error what does not import.

    Raises:
        SpecError: If the project is not valid, or no module of its benchmarks imports.
    """
    project = load_project(root)
    workloads = tuple(load_workloads(project.workloads))
    for broken in broken_benchmarks(project.workloads):
        text = f"warning: left out: {broken}"
        Terminal(stderr=True, soft_wrap=True).print(text, markup=False, highlight=False)
    return workloads
