"""Measure two commits on this machine, their processes interleaved (``ivhl gate --measure``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.bench.experiment.estimate import told
from ivhl.bench.selection import Selection
from ivhl.matrix.project import load_project
from ivhl.tracker.attribution import Treatment
from ivhl.tracker.wording import counted
from ivhl.workload import load_workloads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.bench.experiment import Runs
    from ivhl.matrix.spec import CellSpec


def measure_pair(
    runs: Runs, cells: Sequence[CellSpec], commits: tuple[str, str], workloads: Sequence[str]
) -> None:
    """Measure the core suite where base or head lack it.

    What both have is not measured again, so a killed command goes on; what reaches the same code
    at both is measured once.

    Args:
        runs: Measures.
        cells: Cells to measure in.
        commits: Full hashes of base and head.
        workloads: Names of workloads; empty means all.

    Raises:
        IvhlError: As ``bench``; the records written before stay.
    """
    request = runs.request
    selection = Selection(workloads=tuple(workloads), suite="core")
    cases = selection.choose(load_workloads(load_project(request.root).workloads))
    known = runs.estimate(
        [case.name for case in cases], request.effort.processes, arms=len(commits)
    )
    of = f" of {counted(len(cases), 'case')}, less what both commits have"
    runs.console.print(told("expected", len(cells), known, of=of))
    for cell in cells:
        runs.console.print(f"{cell.id}: {commits[0][:8]} and {commits[1][:8]} interleaved")
        arms = [Treatment(cell.python, cell.torch, commit) for commit in commits]
        runs.run(arms, selection, request.effort)
