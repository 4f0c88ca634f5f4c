"""Measure all design points, interleaved, and check the installed packages (``ivhl attribute``)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist, fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from ivhl.bench import bench
from ivhl.bench.foretold import AROUND_S, UNKNOWN, case_took, foretell
from ivhl.bench.rounds import DRIFT, PROCESSES_PER_ROUND, SESSION, noise_of
from ivhl.bench.selection import Selection
from ivhl.errors import ResultsError, SpecError
from ivhl.git import lock_texts
from ivhl.matrix.diff import diff_locks
from ivhl.matrix.locks import LockState, lock_path, matrix_digest, parse_lock
from ivhl.matrix.spec import CellSpec
from ivhl.measure.flags import FLAG_REFUSED
from ivhl.tracker.attribution import attribute, attribute_rounds
from ivhl.tracker.index import open_index
from ivhl.tracker.metrics import student, within
from ivhl.tracker.store import case_name
from ivhl.tracker.wording import counted, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from ivhl.bench.request import Request
    from ivhl.matrix.spec import Matrix
    from ivhl.records.record import RunRecord
    from ivhl.tracker.attribution import Attributed, Corner
    from ivhl.tracker.effects import Factor
    from ivhl.tracker.metrics import Metric

_NORMAL_95: Final = NormalDist().inv_cdf(0.975)


class RecordedLocks:
    """What is installed in the cells of records, by the hashes of their locks.

    Each file of a cell was checked against the hashes of its lock when it was installed, and against
    those of its wheels before it was measured.

    Args:
        root: Root of the project, whose history has the locks.
        matrix: Says which differences are forced.
    """

    def __init__(self, root: Path, matrix: Matrix) -> None:
        self._root, self._matrix = root, matrix
        self._states: dict[tuple[str, str], LockState | None] = {}
        self._texts: dict[str, Mapping[str, bytes]] = {}

    def __call__(self, one: RunRecord, other: RunRecord) -> list[str]:
        """Return what differs between two cells beyond the axis between them."""
        states = []
        for record in (one, other):
            if record.cell.lock_sha256 is None:
                return [
                    f"{record.cell.id} is an existing environment: no hashes say what is installed"
                ]
            state = self.state(record.cell.python, record.cell.torch, record.cell.lock_sha256)
            if state is None:
                sha = record.cell.lock_sha256[:12]
                return [f"the lock {sha} of {record.cell.id} is in no commit here"]
            states.append(state)
        return list(diff_locks(self._matrix, *states).reasons)

    def state(self, python: str, torch: str, sha256: str) -> LockState | None:
        """Return a lock as it was; ``None`` if git has no such text."""
        cell = CellSpec(python, torch)
        if (cell.id, sha256) in self._states:
            return self._states[cell.id, sha256]
        if cell.id not in self._texts:
            self._texts[cell.id] = lock_texts(self._root, [cell.id])[cell.id]
        text = self._texts[cell.id].get(sha256)
        state = None
        if text is not None:
            state = LockState(
                cell=cell,
                kind="locked",
                path=lock_path(self._root, cell),
                sha256=sha256,
                # What was measured then does not become another thing when the matrix changes.
                digest=matrix_digest(self._matrix, cell),
                pins=parse_lock(text.decode()),
            )
        self._states[cell.id, sha256] = state
        return state


def measure_corners(
    request: Request,
    corners: Sequence[Corner],
    factors: Sequence[Factor],
    cases: Sequence[str],
    *,
    rounds: int,
    results: Path,
    console: Console,
    check: Callable[[dict[Corner, RunRecord]], None],
    measure: Callable[[Request, Console], object] = bench,
) -> list[Attributed]:
    """Measure cases at all corners in turns, and return whose doing their differences are.

    Args:
        request: Machine and effort; commit, cell and cases are filled in.
        corners: All corners.
        factors: The axes.
        cases: Names of cases.
        rounds: How often each corner is measured.
        results: Folder of the results.
        console: Where progress is printed.
        check: Raises if the records of the corners are not matched.
        measure: Measures one request.

    Raises:
        ResultsError: If a corner has no record of a case.
        IvhlError: As ``bench``; the records written before stay.
    """
    found: dict[str, list[dict[Corner, RunRecord]]] = {case: [] for case in cases}
    n_runs, n_cells = rounds * len(corners), len({(c.at.python, c.at.torch) for c in corners})
    # The compile cache keeps no code that was made with flags.
    n_compiling = sum(rounds if corner.at.flags else 1 for corner in corners)
    told = foretell(
        results,
        request.machine,
        request.effort.device,
        cases,
        lambda record: case_took(record, PROCESSES_PER_ROUND, n_compiling / n_runs),
    )
    takes = told and f", {told.cases.runs(n_runs)} {told.by}"
    console.print(
        f"expected: {counted(n_runs, 'run')} of {counted(len(cases), 'case')}"
        f"{takes or f'; {UNKNOWN}'}; beside that, what is "
        f"not there yet of {counted(n_cells, 'environment')}: 4.5 to 7 GB each, less what uv shares"
    )
    with TemporaryDirectory(prefix="ivhl-flags-") as apart:
        for number in range(rounds):
            # The first of a round moves on: what a session warms up or wears out favours no corner.
            turn = number % len(corners)
            table: dict[str, dict[Corner, RunRecord]] = {case: {} for case in cases}
            # A flag that cannot be set is known after seconds: first of all with flags.
            ordered = [*corners[::-1]] if corners[-1].at.flags else [*corners]
            for corner in (*ordered[turn:], *ordered[:turn]):
                at = corner.at
                console.print(f"round {number + 1} of {rounds}: {corner}")
                # A record with flags would take the place of one without.
                folder = Path(apart) if at.flags else results
                effort = replace(
                    request.effort, force=True, processes=PROCESSES_PER_ROUND, flags=at.flags
                )
                measure(
                    replace(
                        request,
                        python=at.python,
                        releases=(at.torch,),
                        commit=at.commit,
                        results=folder,
                        selection=Selection(cases=tuple(cases)),
                        effort=effort,
                    ),
                    console,
                )
                for record in _newest(folder, request, corner):
                    if case_name(record) in table:
                        _refuse_flags(record, corner)
                        table[case_name(record)][corner] = record
            for case, records in table.items():
                if missing := [corner for corner in corners if corner not in records]:
                    raise ResultsError(
                        f"{case} has no record in {missing[0]}",
                        hint="ivhl bench says why it cannot be measured there",
                    )
                check(records)
                found[case].append({corner: records[corner] for corner in corners})
            if number == 0 and rounds > 1:
                # By its records: the first round also took what making the environments takes.
                round_s = sum(
                    AROUND_S + sum(_again_s(records[corner]) for records in table.values())
                    for corner in corners
                )
                left = counted(n_runs - len(corners), "run")
                console.print(
                    f"left: {left}, {seconds((rounds - 1) * round_s)} by the first round"
                )
    return [attribute_measured(one, factors, results) for one in found.values()]


def _again_s(record: RunRecord) -> float:
    """Return what a case takes in the next round, in which the compile cache has its code."""
    compiling = 1.0 if record.conditions.flags else 0.0
    return case_took(record, PROCESSES_PER_ROUND, compiling).beside_s


def attribute_measured(
    rounds: Sequence[Mapping[Corner, RunRecord]], factors: Sequence[Factor], results: Path
) -> Attributed:
    """Return what each axis does to a case, by rounds that were measured now.

    One round does not show what runs of one environment, one after the other, differ by. Then the
    intervals are those of records: they hold what another run differs by.

    Args:
        rounds: Corner to its record, for each round.
        factors: The axes.
        results: Folder of the results, from which that is learnt.
    """
    if len(rounds) == 1:
        return attribute(rounds[0], factors, open_index(results).spreads)
    return attribute_rounds(rounds, factors, reach, expected)


def _refuse_flags(record: RunRecord, corner: Corner) -> None:
    """Raise if a flag could not be set.

    Raises:
        SpecError: Names the release and the flag.
    """
    said = "" if record.failure is None else record.failure.message.partition(FLAG_REFUSED)[2]
    if corner.at.flags and said:
        raise SpecError(
            f"{FLAG_REFUSED}{said} (PyTorch {corner.at.torch})",
            hint="name a setting that each release of the comparison has",
        )


def _newest(results: Path, request: Request, corner: Corner) -> tuple[RunRecord, ...]:
    index, cell = open_index(results), CellSpec(corner.at.python, corner.at.torch).id
    return index.read(
        entry
        for entry in index.entries
        if (entry.commit, entry.case.cell, entry.case.machine, entry.case.existing)
        == (corner.at.commit, cell, request.machine, False)
        and entry.made.flags == corner.at.flags
    )


def reach(metric: Metric, moves: Sequence[float], noises: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the rounds and half of its 95 % interval."""
    del metric
    scale, freedom = noise_of([moves], noises)
    return fmean(moves), student(_NORMAL_95, freedom) * scale / math.sqrt(len(moves))


def expected(metric: Metric, runs: Sequence[RunRecord], weights: Sequence[float]) -> float:
    """Return the noise of a weighted sum of runs of a session."""
    # ``SESSION`` is that of a difference of two runs.
    each = [math.hypot(SESSION / math.sqrt(2), DRIFT[metric] * within(r, metric)) for r in runs]
    return math.hypot(*(weight * noise for weight, noise in zip(weights, each, strict=True)))
