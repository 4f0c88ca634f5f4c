"""Jobs of GitHub Actions for cells."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from ivhl.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ivhl.matrix.spec import CellSpec
    from ivhl.workload import Case

# GitHub starts at most this many jobs from one matrix.
_GITHUB_JOBS = 256


def github_jobs(
    cells: Sequence[CellSpec],
    work: Mapping[str, Sequence[Case]],
    every: Sequence[Case],
    options: Sequence[tuple[str, str | None]],
) -> str:
    """Return a GitHub Actions matrix: one line of JSON with a job per cell.

    Args:
        cells: Cells that get a job.
        work: Cases to measure, per cell id.
        every: Cases that a job measures without ``--workload``; empty to always name workloads.
        options: Options of every job; those with their default are left out.

    Raises:
        SpecError: If there are more jobs than GitHub starts.
    """
    if len(cells) > _GITHUB_JOBS:
        raise SpecError(
            f"--format github: a matrix may have at most {_GITHUB_JOBS} jobs (got {len(cells)})",
            hint="select fewer cells: --tier default, --torch, --python or --shard",
        )
    given = [
        word
        for name, value in options
        if value not in (None, "cpu", "HEAD")
        for word in (name, str(value))
    ]
    include = []
    for cell in cells:
        names = dict.fromkeys(case.workload.name for case in work[cell.id])
        words = ["--torch", cell.torch, *given]
        if len(work[cell.id]) != len(every):
            words += [word for name in names for word in ("--workload", name)]
        entry = {"cell": cell.id, "python": cell.python, "torch": cell.torch}
        include.append(entry | {"arguments": shlex.join(words)})
    return json.dumps({"include": include}, separators=(",", ":"))
