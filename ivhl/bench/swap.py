"""Measure a cell beside itself with one package swapped (``ivhl attribute CELL --swap PIN``).

Both are measured in clones of the repository, as ``ivhl repeat`` does: the cell with its own lock,
and with that in which the package is swapped. Their records bear the same cell, so none of them is
kept among the results.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ivhl.bench.attribution import attribute_measured
from ivhl.bench.foretold import AROUND_S, UNKNOWN, Took, case_took, foretell
from ivhl.bench.repetition import run_ivhl
from ivhl.bench.rounds import PROCESSES_PER_ROUND
from ivhl.errors import LockError, ResultsError
from ivhl.git import clone_at
from ivhl.matrix.locks import lock_path, put_lock
from ivhl.measure.alone import only_run_here
from ivhl.tracker.attribution import corners_of, factors_of, not_matched
from ivhl.tracker.index import open_index
from ivhl.tracker.store import case_name
from ivhl.tracker.wording import counted, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from ivhl.matrix.spec import CellSpec
    from ivhl.matrix.swap import Swap
    from ivhl.records.record import RunRecord
    from ivhl.tracker.attribution import Attributed, Corner, Ends
    from ivhl.workload import Case

# The clones are removed, so they cannot be looked at.
_MEASURE = partial(run_ivhl, hint="ivhl bench in the cell as it is says whether the case works")


def measure_swap(
    root: Path,
    cell: CellSpec,
    swap: Swap,
    ends: tuple[Ends, Ends],
    cases: Sequence[Case],
    *,
    rounds: int,
    machine: str,
    console: Console,
    measure: Callable[[Path, Sequence[str], Console], None] = _MEASURE,
) -> list[Attributed]:
    """Measure cases with both locks in turns, and return what the swapped package does to them.

    Args:
        root: Root of the project.
        cell: The cell.
        swap: Its lock with the package swapped.
        ends: The cell with its own package, and with the swapped one, at one commit.
        cases: What to measure.
        rounds: How often each is measured.
        machine: Name of this machine.
        console: Where progress is printed.
        measure: Runs ``ivhl`` with some arguments in a folder.

    Raises:
        ResultsError: If a case has no record.
        LockError: If an environment cannot be made, or holds another lock.
    """
    corners, factors = corners_of(*ends), factors_of(*ends)
    texts = {corners[0]: lock_path(root, cell).read_bytes(), corners[1]: swap.text}
    found: dict[str, list[dict[Corner, RunRecord]]] = {case.name: [] for case in cases}
    n_runs = rounds * len(corners) * len(cases)
    told = foretell(
        root / "results",
        machine,
        "cpu",
        [case.name for case in cases],
        # The first round compiles, and later ones find the code in the cache.
        lambda record: case_took(record, PROCESSES_PER_ROUND, 1 / rounds),
    )
    # Each case has runs of its own.
    of_one = told and Took(*(each_s / len(cases) for each_s in told.cases))
    takes = f", {of_one.runs(n_runs)} {told.by}" if told and of_one else f"; {UNKNOWN}"
    console.print(
        f"expected: {counted(n_runs, 'run')}{takes}; beside that, two environments are made in "
        "clones: 4.5 to 7 GB each, less what uv shares"
    )
    place = root / ".asv"
    place.mkdir(exist_ok=True)
    with only_run_here(root), TemporaryDirectory(prefix="swap-", dir=place) as name:
        trees = {}
        for corner, text in texts.items():
            folder = Path(name, corner.at.package.replace("==", "-"))
            trees[corner] = clone_at(root, corner.at.commit, folder / "tree")
            put_lock(trees[corner], cell, text)
        for number in range(rounds):
            # The first of a round moves on, as in ``measure_corners``.
            turn = number % len(corners)
            table: dict[str, dict[Corner, RunRecord]] = {case.name: {} for case in cases}
            for corner in (*corners[turn:], *corners[:turn]):
                console.print(
                    f"round {number + 1} of {rounds}: {cell.id} with {corner.at.package}"
                )
                for position, case in enumerate(cases):
                    # Each run has results of its own: their records have the same key.
                    results = Path(name, f"results-{number}-{position}-{corner.at.package}")
                    results.mkdir()
                    measure(
                        trees[corner], _arguments(cell, corner, case, machine, results), console
                    )
                    record = _record(results, case, cell)
                    if record.cell.lock_sha256 != hashlib.sha256(texts[corner]).hexdigest():
                        raise LockError(
                            f"{case.name}: was not measured with {corner.at.package}: its lock is "
                            f"{(record.cell.lock_sha256 or 'none')[:12]}",
                            hint="run the same command again",
                        )
                    table[case.name][corner] = record
            for case_id, records in table.items():
                ordered = {corner: records[corner] for corner in corners}
                reasons = not_matched(ordered, factors, lambda *_: ())
                if reasons:
                    raise LockError(
                        f"{case_id}: both runs differ in more than {swap.after}: {reasons[0]}",
                        hint="run the same command again",
                    )
                found[case_id].append(ordered)
            if number == 0 and rounds > 1:
                # By its records: the first round took as long as making the environments, too.
                made = [record for records in table.values() for record in records.values()]
                round_s = sum(
                    case_took(one, PROCESSES_PER_ROUND, 0.0).beside_s + AROUND_S for one in made
                )
                left = counted(n_runs - len(made), "run")
                left_s = seconds((rounds - 1) * round_s)
                console.print(f"left: {left}, {left_s} by the first round")
    return [attribute_measured(one, factors, root / "results") for one in found.values()]


def _arguments(
    cell: CellSpec, corner: Corner, case: Case, machine: str, results: Path
) -> list[str]:
    return [
        *("bench", "--python", cell.python, "--torch", cell.torch, "--commit", corner.at.commit),
        *("--workload", case.workload.name, "--size", case.size, "--variant", case.variant.name),
        *("--machine", machine, "--processes", str(PROCESSES_PER_ROUND), "--force"),
        *("--no-publish", "--results", str(results)),
    ]


def _record(results: Path, case: Case, cell: CellSpec) -> RunRecord:
    index = open_index(results)
    found = [one for one in index.read(index.entries) if case_name(one) == case.name]
    if not found:
        raise ResultsError(
            f"{case.name} has no record in {cell.id}",
            hint="ivhl bench says why it cannot be measured there",
        )
    (record,) = found
    if record.failure is not None and record.failure.failure_class == "environment":
        raise LockError(
            f"{cell.id}: its environment cannot be made: {record.failure.message}",
            hint="see whether the index still has the files of both locks",
        )
    return record
