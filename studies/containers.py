"""Measure a cell natively and in containers, alternating, and compare the speedups case by case.

``python -m studies.containers CELL --rounds 3`` needs a Docker engine. Exit code 10 if a speedup
differs by more than the noise floor.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import TYPE_CHECKING

from ivhl.bench.main import bench
from ivhl.bench.request import Request, Selection
from ivhl.cli.names import find_cell
from ivhl.image.executor import DockerExecutor
from ivhl.matrix.project import find_root, load
from ivhl.measure.effort import Effort
from ivhl.records.lines import lines_of, read_plain
from ivhl.records.reader import read_record
from ivhl.tracker.store.indexing import records_files
from ivhl.tracker.store.records import case_name
from ivhl.tracker.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ivhl.records.record import Arm, RunRecord


DIFFERENT = 10  # exit code


def main() -> int:
    """Measure, print each case with its verdict, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m studies.containers", description=__doc__)
    parser.add_argument("cell", metavar="CELL")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workload", action="append", default=[])
    parser.add_argument("--variant", action="append", default=[])
    arguments = parser.parse_args()
    root, matrix = load(find_root())
    cell = find_cell(matrix, arguments.cell)
    console = Terminal(highlight=False, soft_wrap=True)
    folder = root / ".asv" / "compare"
    shutil.rmtree(folder, ignore_errors=True)
    sides = {"native": None, "docker": DockerExecutor(root)}
    selection = Selection(
        workloads=tuple(arguments.workload),
        size=None,
        variants=tuple(arguments.variant),
        suite=None,
    )
    for number in range(arguments.rounds):
        # Alternate the order: the first run of a round finds a cooler machine.
        for side in sorted(sides, reverse=number % 2 == 0):
            console.print(f"round {number + 1} of {arguments.rounds}: {side}")
            request = Request(
                root=root,
                python=cell.python,
                releases=(cell.torch,),
                results=folder / side,
                selection=selection,
                effort=Effort(force=True),
            )
            bench(request, console, sides[side])
    found, left_out = judge_agreement(
        every_record(folder / "native"), every_record(folder / "docker")
    )
    for text in (*map(_as_text, found), *left_out):
        console.print(text)
    return 0 if found and all(one.agrees for one in found) else DIFFERENT


def _as_text(one: Agreement) -> str:
    sides = (("native", one.native), ("container", one.docker))
    runs = ", ".join(f"{name} {' '.join(f'{x:.2f}x' for x in xs)}" for name, xs in sides)
    times = f"seconds: eager {one.eager_ratio:.2f}, compiled {one.compiled_ratio:.2f}"
    verdict = "agrees" if one.agrees else "DIFFERS"
    result = f"ratio {one.ratio:.2f}, noise floor {one.floor:.2f}: {verdict} ({times})"
    return f"{one.case}\n  {runs}\n  {result}"


def noise(record: RunRecord) -> float:
    """Return the noise of a run as a factor: the A/A interval's limit farther from 1."""
    if record.aa is None or record.aa.low <= 0:
        return 1.0
    return max(record.aa.high, 1 / record.aa.low, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One case, measured several times on the machine itself and in containers.

    Attributes:
        native: Speedups on the machine itself, one per run.
        docker: Speedups in containers, one per run.
        eager_ratio: Seconds of eager in containers over those outside, medians of the runs.
        compiled_ratio: The same ratio for compiled code.
        floor: Noise floor, a factor: see ``judge_agreement``.
    """

    case: str
    native: tuple[float, ...]
    docker: tuple[float, ...]
    eager_ratio: float
    compiled_ratio: float
    floor: float

    @property
    def ratio(self) -> float:
        """Speedup in containers over that outside, medians of the runs."""
        return median(self.docker) / median(self.native)

    @property
    def agrees(self) -> bool:
        """Whether the speedups differ by no more than the noise floor."""
        return abs(log(self.ratio)) <= log(self.floor)


def judge_agreement(
    native: Iterable[RunRecord], docker: Iterable[RunRecord]
) -> tuple[tuple[Agreement, ...], tuple[str, ...]]:
    """Return how the cases compare, and which cannot be compared.

    The noise floor of a case is the larger of two factors. One is the spread between runs on the
    machine itself: the largest speedup over the smallest. The other is the noise within runs: the
    factors of ``noise`` (the bound of the A/A interval farther from 1), the median
    over native runs multiplied by the median over container runs.

    Args:
        native: Records from the machine itself, all runs.
        docker: Records from containers on it.

    Returns:
        The cases with a speedup in all of their runs, and a line for each other case.
    """
    sides = [_by_case(native), _by_case(docker)]
    found, left_out = [], []
    for case in sorted(sides[0].keys() | sides[1].keys()):
        runs = [side.get(case, []) for side in sides]
        failures = {_failure(record) for side in runs for record in side}
        if not all(runs):
            left_out.append(f"{case}: measured on one side only")
        elif failures == {""}:
            found.append(_judge(case, *runs))
        elif len({frozenset(map(_failure, side)) for side in runs}) == 1 and len(failures) == 1:
            left_out.append(f"{case}: {failures.pop()} on both sides")
        else:
            left_out.append(f"{case}: fails in some runs: {', '.join(sorted(failures - {''}))}")
    return tuple(found), tuple(left_out)


def _by_case(records: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(case_name(record), []).append(record)
    return groups


def _failure(record: RunRecord) -> str:
    return "" if record.failure is None else record.failure.failure_class


def _judge(case: str, native: Sequence[RunRecord], docker: Sequence[RunRecord]) -> Agreement:
    outside, within = (
        tuple(record.speedup.value for record in side if record.speedup)
        for side in (native, docker)
    )
    within_runs = exp(sum(median(log(noise(record)) for record in s) for s in (native, docker)))
    return Agreement(
        case=case,
        native=outside,
        docker=within,
        eager_ratio=_seconds(r.eager for r in docker) / _seconds(r.eager for r in native),
        compiled_ratio=_seconds(r.compiled for r in docker) / _seconds(r.compiled for r in native),
        floor=max(max(outside) / min(outside), within_runs),
    )


def _seconds(arms: Iterable[Arm | None]) -> float:
    return median(median(arm.samples_s) for arm in arms if arm is not None)


def every_record(results: Path) -> tuple[RunRecord, ...]:
    """Return all records below a folder, including those that a later one replaces.

    Raises:
        ValueError: If a line is not a record.
    """
    return tuple(
        read_record(line.data)
        for path in records_files(results)[0]
        for line in lines_of(read_plain(path))
    )


if __name__ == "__main__":
    sys.exit(main())
