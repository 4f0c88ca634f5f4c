"""Serve asv's benchmarks: list the cases, run them once, and return single values."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ivhl.measure.outcome import finished
from ivhl.measure.runner import CaseEvent, run_cases, run_in_turns
from ivhl.measure.settings import (
    BASE_VARIABLE,
    CELL_VARIABLE,
    COMMIT_VARIABLE,
    PROJECT_VARIABLE,
    read_settings,
)
from ivhl.records.answers import read_records
from ivhl.records.record import Cell, RunRecord
from ivhl.workload import Case, Workload, core_variant, every_case, load_workloads

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ivhl.measure.settings import Settings

Values = dict[str, dict[str, Any]]


class AsvMetric(NamedTuple):
    """One ``track_`` benchmark of each workload.

    Attributes:
        value: Its key in ``values_of``.
    """

    value: str
    unit: str
    title: str


METRICS: Final[dict[str, AsvMetric]] = {
    "speedup": AsvMetric("speedup", "x", "Eager over compiled: higher is better."),
    "relative_time": AsvMetric("relative", "compiled/eager", "Compiled over eager."),
    "failed": AsvMetric("failed", "failed", "1 if the case failed, else 0."),
    "eager_time": AsvMetric("eager_s", "seconds", "Seconds per eager call."),
    "compiled_time": AsvMetric("compiled_s", "seconds", "Seconds per compiled call."),
    "compile_time": AsvMetric("compile_s", "seconds", "Seconds of the first call, empty cache."),
    "peak_memory": AsvMetric(
        "compiled_peak", "bytes", "Bytes that one compiled call holds beyond its inputs."
    ),
}
_PACKAGED: Final = 3  # benchmarks.SUBJECT.NAME.calls: parts before the last


class AsvOperation(NamedTuple):
    """One workload as asv has it.

    Attributes:
        workload: Its name in the records.
        name: Its name in asv: subject and last part of its name, e.g. ``field.intensity``.
        sizes: The default size first.
        variants: The core variant first.
    """

    workload: str
    name: str
    sizes: tuple[str, ...]
    variants: tuple[str, ...]

    def benchmark(self, metric: str) -> str:
        """Return the name of the benchmark of a metric, e.g. ``field.intensity.track_failed``."""
        return f"{self.name}.track_{metric}"


def subject_of(name: str, workload: Workload | None) -> str:
    """Return the subject of a workload, as ``tracker.views.source`` has it for our pages."""
    parts = workload.make_inputs.partition(":")[0].split(".") if workload else []
    return parts[-3] if len(parts) > _PACKAGED else name.partition(".")[0]


def operation_of(
    name: str,
    workload: Workload | None,
    device: str = "cpu",
    recorded: Iterable[tuple[str, str]] = (),
) -> AsvOperation:
    """Return a workload as asv has it.

    Args:
        name: Its name in the records.
        workload: Its declaration; ``None`` if the project no longer has one.
        device: ``cpu`` or ``cuda``: it decides which variants are declared.
        recorded: Size and variant of its records: only these are parameters then.
    """
    sizes: list[str] = []
    variants: list[str] = []
    if workload is not None:
        sizes = [workload.default_size, *workload.sizes]
        variants = [core_variant(workload)]
        variants += [case.variant.name for case in every_case((workload,), device)]
    if pairs := sorted(set(recorded)):
        known = {size for size, _ in pairs}, {variant for _, variant in pairs}
        sizes = [size for size in (*sizes, *sorted(known[0])) if size in known[0]]
        variants = [one for one in (*variants, *sorted(known[1])) if one in known[1]]
    parts = [subject_of(name, workload), name.rpartition(".")[2]]
    return AsvOperation(
        name,
        ".".join(re.sub(r"\W", "_", part, flags=re.ASCII) or "_" for part in parts),
        tuple(dict.fromkeys(sizes)),
        tuple(dict.fromkeys(filter(None, variants))),
    )


def operations() -> tuple[AsvOperation, ...]:
    """Return all workloads of this device, with every size and variant.

    Not only those of this run: asv's history breaks when the parameters change.
    """
    settings = read_settings()
    _see_project(settings)
    workloads = load_workloads(settings.workloads)
    every = [operation_of(w.name, w, settings.effort.device) for w in workloads]
    return tuple(one for one in every if one.variants)


def measure_cell() -> Values:
    """Run the requested cases in this cell and return all values in its record file.

    The file includes earlier runs at the same commit, so that a partial run keeps their values.

    Raises:
        OSError: If a record cannot be written.
        IvhlError: If this commit lacks a requested workload, size or variant.
    """
    # asv ends this process with SIGTERM; exit, so that the running case ends, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    settings = read_settings()
    cell = Cell(**json.loads(os.environ[CELL_VARIABLE]))
    project, base = map(os.environ.get, (PROJECT_VARIABLE, BASE_VARIABLE))
    run = settings.run_in(cell, os.environ[COMMIT_VARIABLE], project_path=project)
    _see_project(settings)
    cases = settings.cases()

    def report(event: CaseEvent, case: Case, record: RunRecord | None) -> None:
        details = {} if record is None else finished(record)
        settings.report(f"case-{event}", cell=cell.id, case=case.name, **details)

    settings.report("cell-measuring", cell=cell.id, cases=[c.name for c in cases])
    try:
        if settings.base is None:
            run_cases(run, cases, report)
        else:
            before = settings.run_in(cell, settings.base, project_path=base)
            # One that could not be built has its records.
            built = [one for one in (before, run) if one.project_path is not None]
            run_in_turns(built, cases, report)
    except OSError as error:
        settings.report(
            "cannot-write", cell=cell.id, path=str(run.record_file), message=str(error)
        )
        raise
    settings.report("cell-measured", cell=cell.id)
    return values_in(run.record_file, cell, settings.effort.device)


def _see_project(settings: Settings) -> None:
    """Let this process import workloads that the project has itself, where nothing is installed."""
    if settings.base is not None and ":" in settings.workloads:
        places = filter(None, map(os.environ.get, (PROJECT_VARIABLE, BASE_VARIABLE)))
        sys.path += [place for place in places if place not in sys.path]


def values_in(path: Path, cell: Cell, device: str) -> Values:
    """Return the values of the latest record of each case, by case and metric."""
    values: Values = {}
    for ((workload, _, size, variant), where), _, record in read_records(path):
        if where != device or record.cell.lock_sha256 != cell.lock_sha256:
            continue
        name = f"{workload}/{size}/{variant}"
        values.pop(name, None)
        if not is_absent(record):
            values[name] = values_of(record)
    return values


def values_of(record: RunRecord) -> dict[str, Any]:
    """Return the metrics of one record; a failed one has those measured before the failure."""
    failure = None if record.failure is None else asdict(record.failure)
    found: dict[str, Any] = {"failure": failure, "failed": 0 if failure is None else 1}
    if record.eager:
        found["eager_s"] = list(record.eager.samples_s)
    if record.speedup and record.compiled and record.compile:
        found["compiled_s"] = list(record.compiled.samples_s)
        found["speedup"] = record.speedup.value
        found["relative"] = 1 / record.speedup.value
        found["compile_s"] = record.compile.cold_s
        found["compiled_peak"] = None if record.memory is None else record.memory.compiled_peak
    return found


def is_absent(record: RunRecord) -> bool:
    """Return whether the commit lacks the measured code: asv's graphs show a gap, not a failure."""
    return record.failure is not None and record.failure.failure_class == "absent"


def value(cell: Values, case: str, metric: str) -> Any:  # noqa: ANN401  (number or samples)
    """Return one metric of one case for asv.

    Returns:
        A number; for samples, asv's dictionary; NaN (asv's "not applicable") if the case was not
        run.

    Raises:
        RuntimeError: If the case failed before this metric was measured, with the reason.
    """
    if case not in cell:
        return math.nan
    found = cell[case].get(metric)
    if found is None:
        if failure := cell[case]["failure"]:
            # Printed as well: asv's log shows the output of a failing benchmark.
            reason = (
                f"{failure['failure_class']} in phase {failure['phase']}: {failure['message']}"
            )
            print(reason, file=sys.stderr)
            raise RuntimeError(reason)
        return math.nan
    if isinstance(found, list):
        return {"samples": found, "number": 1} if len(found) > 1 else median(found)
    return found
