"""Measure two commits on this machine, cell by cell in turns (``ivhl gate --measure``)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ivhl.bench import bench
from ivhl.matrix.project import MATRIX
from ivhl.matrix.spec import load_matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from ivhl.bench.request import Request


def measure_both(
    request: Request,
    commits: tuple[str, str],
    pythons: Sequence[str],
    console: Console,
    measure: Callable[[Request, Console], object] = bench,
) -> None:
    """Measure what base and head lack, one after the other in each cell of the default tier.

    A cell's two runs are neighbours in time, and the first of them alternates from cell to cell:
    what the machine's hour favours, it favours in both commits alike.

    Args:
        request: What to measure; commit, Python and release are filled in.
        commits: Full hashes of base and head.
        pythons: Pythons of the matrix; empty means all.
        console: Where progress is printed.
        measure: Measures one request.

    Raises:
        IvhlError: As ``bench``; the records written before stay.
    """
    matrix = load_matrix(request.root / MATRIX)
    cells = matrix.cells(pythons, request.releases, request.tier)
    for number, cell in enumerate(cells):
        for commit in commits if number % 2 == 0 else reversed(commits):
            which = "base" if commit == commits[0] else "head"
            console.print(f"{cell.id}: {which}, {commit[:8]}")
            one = replace(request, python=cell.python, releases=(cell.torch,), commit=commit)
            measure(one, console)
