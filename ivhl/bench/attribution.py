"""Measure the corners of a factorial round by round, and check what is installed."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from ivhl.bench.experiment import Experiment, Runs
from ivhl.bench.experiment.estimate import environments
from ivhl.bench.experiment.evidence import PROCESSES_PER_ROUND, expected_noise, mean_of_rounds
from ivhl.bench.experiment.journal import digest_of_tree
from ivhl.errors import ResultsError, SpecError
from ivhl.git import lock_texts
from ivhl.matrix.diff import diff_locks
from ivhl.matrix.locks import LockState, lock_path, matrix_digest, parse_lock
from ivhl.matrix.spec import CellSpec, Matrix
from ivhl.measure.flags import FLAG_REFUSED
from ivhl.tracker.causes.attribution import attribute, attribute_rounds, corners_of, factors_of
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.metrics import NORMAL_95

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ivhl.records.record import RunRecord
    from ivhl.tracker.causes.attribution import Attributed, Corner, Factor, Treatment


class RecordedLocks:
    """What is installed in the cells of records, by the hashes of their locks.

    Each file of a cell was checked against the hashes of its lock when it was installed, and against
    those of its wheels before it was measured.

    Args:
        root: Root of the project, whose history has the locks.
        matrix: Says which differences are forced.
    """

    def __init__(self, root: Path, matrix: Matrix) -> None:
        self._root, self.matrix = root, matrix
        self.state = cache(self._state)
        self._texts = cache(lambda cell: lock_texts(root, [cell])[cell])

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
        return list(diff_locks(self.matrix, *states).reasons)

    def _state(self, python: str, torch: str, sha256: str) -> LockState | None:
        """Return a lock as it was; ``None`` if git has no such text."""
        cell = CellSpec(python, torch)
        text = self._texts(cell.id).get(sha256)
        if text is None:
            return None
        return LockState(
            cell=cell,
            kind="locked",
            path=lock_path(self._root, cell),
            sha256=sha256,
            # A later change of the matrix does not change the identity of these measurements.
            digest=matrix_digest(self.matrix, cell),
            pins=parse_lock(text.decode()),
        )


def measure_corners(
    runs: Runs,
    ends: tuple[Treatment, Treatment],
    cases: Sequence[str],
    *,
    rounds: int,
    check: Callable[[dict[Corner, RunRecord]], None],
) -> list[Attributed]:
    """Measure cases at all corners round by round, and return whose doing their differences are.

    Args:
        runs: Measures.
        ends: Both ends of the factorial.
        cases: Names of cases.
        rounds: How often each corner is measured.
        check: Raises if the records of the corners are not matched.

    Raises:
        ResultsError: If a corner has no record of a case.
        SpecError: If a flag cannot be set.
        IvhlError: As ``bench``; the same command goes on with what it lacks.
    """
    root = runs.request.root
    corners, factors = corners_of(*ends), factors_of(*ends)
    arms = {corner.at: corner for corner in corners}
    cells = {CellSpec(arm.python, arm.torch) for arm in arms}
    experiment = Experiment(
        runs=runs,
        kind="attribute",
        # A flag that cannot be set is known after seconds: first of all with flags.
        arms=[*arms][::-1] if ends[1].flags else [*arms],
        cases=cases,
        rounds=rounds,
        processes=PROCESSES_PER_ROUND,
        beside=[digest_of_tree(root, cells)],
        check=_refuse_flags,
    )
    cost = experiment.cost(rounds * len(arms))
    runs.console.print(f"{cost}; beside that, {environments(len(cells))}")
    found: dict[str, list[dict[Corner, RunRecord]]] = {case: [] for case in cases}
    for number, table in enumerate(experiment.tables(lambda: cases)):
        for case in cases:
            if case not in table:
                raise ResultsError(
                    f"{case} has no record in each of {', '.join(map(str, arms))}",
                    hint="ivhl bench says why it cannot be measured there",
                )
            records = {corner: table[case][arm] for arm, corner in arms.items()}
            check(records)
            found[case].append(records)
        if number == 0 and rounds > 1:
            runs.console.print(experiment.left(table))
    experiment.end()
    return [attribute_measured(one, factors, runs.folder) for one in found.values()]


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
    reach = partial(mean_of_rounds, limit=NORMAL_95)
    return attribute_rounds(rounds, factors, reach, expected_noise)


def _refuse_flags(arm: Treatment, record: RunRecord) -> None:
    """Raise if a flag could not be set.

    Raises:
        SpecError: Names the release and the flag.
    """
    said = "" if record.failure is None else record.failure.message.partition(FLAG_REFUSED)[2]
    if arm.flags and said:
        raise SpecError(
            f"{FLAG_REFUSED}{said} (PyTorch {arm.torch})",
            hint="name a setting that each release of the comparison has",
        )
