"""Measure two commits on this machine, interleaved in each cell (``ivhl gate --measure``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.bench import bench
from ivhl.bench.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.console import Console

    from ivhl.matrix.spec import CellSpec


def measure_both(
    root: Path,
    cells: Sequence[CellSpec],
    commits: tuple[str, str],
    console: Console,
    *,
    machine: str,
    results: Path,
    measure: Callable[[Request, Console], object] = bench,
) -> None:
    """Measure the core suite where base or head lack it, one after the other in each cell.

    A cell's two runs are neighbours in time, and the first of them alternates from cell to cell:
    what the machine's hour favours, it favours in both commits alike.

    Args:
        root: Root of the project.
        cells: Cells to measure in.
        commits: Full hashes of base and head.
        console: Where progress is printed.
        machine: Name of this machine in the results.
        results: Folder of the results.
        measure: Measures one request.

    Raises:
        IvhlError: As ``bench``; the records written before stay.
    """
    for number, cell in enumerate(cells):
        for commit in commits if number % 2 == 0 else reversed(commits):
            which = "base" if commit == commits[0] else "head"
            console.print(f"{cell.id}: {which}, {commit[:8]}")
            request = Request(
                root=root, python=cell.python, releases=(cell.torch,), commit=commit,
                machine=machine, results=results,
            )  # fmt: skip
            measure(request, console)
