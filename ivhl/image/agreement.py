"""Compare records from containers with records from the machine itself, case by case."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import TYPE_CHECKING

from ivhl.records.lines import lines_of
from ivhl.records.reader import read_record
from ivhl.tracker.gate import noise
from ivhl.tracker.reading import read_records_file, records_files
from ivhl.tracker.store import case_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ivhl.records.record import Arm, RunRecord


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
    factors of ``tracker.gate.noise`` (the bound of the A/A interval farther from 1), the median
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
        for line in lines_of(read_records_file(path))
    )
