"""asv's files of results, made from the records each time that asv reads them.

The records are the history; asv's files say the same in another form, so nothing has to keep the
two alike. Results of the project's own asv suite stand beside them.
"""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asv.benchmarks import Benchmarks
from asv.environment import get_env_name
from asv.machine import Machine as AsvMachine
from asv.results import Results
from asv.runner import BenchmarkResult

from ivhl.asv.configuration import DEVICE_VARIABLE
from ivhl.asv.machine import asv_machine, known_machine
from ivhl.asv.unreadable import unreadable_files
from ivhl.errors import SpecError
from ivhl.git import commit_time_ms
from ivhl.measure.suite import METRICS, AsvOperation, is_absent, operation_of, values_of
from ivhl.records.files import write_whole
from ivhl.tracker.store.records import Problem, device_type, is_existing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ivhl.records.record import RunRecord
    from ivhl.workload import Workload

# Benchmarks of ivhl's suite before 2026-11-28, which had the case as their one parameter.
_FORMER: Final = "compiled.Compiled.track_"
_VERSION: Final = "1"


class ResultsPlace(NamedTuple):
    """Identifies one of asv's files of results.

    Attributes:
        existing: Whether it was measured in an existing environment, which no lock describes.
    """

    machine: str
    commit: str
    python: str
    torch: str
    device: str
    existing: bool


def place_of(record: RunRecord) -> ResultsPlace:
    """Return the place of a record."""
    return ResultsPlace(
        machine=record.machine.name,
        commit=record.commit,
        python=record.cell.python,
        torch=record.cell.torch,
        device=device_type(record),
        existing=is_existing(record),
    )


class OwnSuite:
    """The records as benchmarks of asv: one for each workload and metric.

    A workload that the project no longer has keeps its benchmarks, under its name in the records.
    Records of earlier versions of a workload are left out: they measured something else.

    Args:
        records: The latest record of each key.
        workloads: The project's workloads.
    """

    def __init__(self, records: Iterable[RunRecord], workloads: Iterable[Workload]) -> None:
        declared = {workload.name: workload for workload in workloads}
        groups: dict[str, list[RunRecord]] = {}
        for record in records:
            groups.setdefault(record.workload, []).append(record)
        self.records: dict[AsvOperation, list[RunRecord]] = {}
        names = [*(name for name in declared if name in groups), *sorted({*groups} - {*declared})]
        taken: set[str] = set()
        for name in names:
            newest = max(record.workload_version for record in groups[name])
            group = [one for one in groups[name] if one.workload_version == newest]
            recorded = {(one.size, one.variant) for one in group}
            devices = {device_type(one) for one in group}
            operation = operation_of(
                name, declared.get(name), min(devices, default="cpu"), recorded
            )
            while operation.name in taken:  # two workloads of one subject with one last part
                operation = operation._replace(name=f"{operation.name}_")
            taken.add(operation.name)
            # asv's graphs show a gap where a commit lacks the measured code, and not a failure.
            self.records[operation] = [one for one in group if not is_absent(one)]

    def benchmarks(self, without: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
        """Return asv's descriptions of the benchmarks, by name.

        Args:
            without: Metrics to leave out.
        """
        return {
            operation.benchmark(metric): {
                "code": f"{about.title}\n{operation.workload}",
                "name": operation.benchmark(metric),
                "param_names": ["size", "variant"],
                "params": [
                    [repr(x) for x in operation.sizes],
                    [repr(x) for x in operation.variants],
                ],
                "setup_cache_key": "compiled",
                "type": "track",
                "unit": about.unit,
                "version": _VERSION,
            }
            for operation in self.records
            for metric, about in METRICS.items()
            if metric not in without
        }


def is_ours(name: str, benchmark: Mapping[str, Any]) -> bool:
    """Return whether a benchmark in a list is one of ivhl's suite, and not one of the project's."""
    metric = name.rpartition(".track_")[2]
    ours = metric in METRICS and benchmark.get("param_names") == ["size", "variant"]
    return ours or name.startswith(_FORMER)


def write_machine(results: Path, name: str, about: Mapping[str, Any]) -> None:
    """Write asv's entry for a machine unless it exists; asv shows no results without one.

    Args:
        results: Folder of the results.
        name: Name of the machine.
        about: Entry from ``asv_machine``.

    Raises:
        ResultsError: If it cannot be written.
    """
    if not known_machine(results, name):
        text = json.dumps({**about, "version": AsvMachine.api_version}, indent=4, sort_keys=True)
        write_whole(results / name / "machine.json", text.encode(), results)


def write_foreign(results: Path, view: Path) -> tuple[Problem, ...]:
    """Link the results of the project's own asv suite into a new folder, with its benchmarks.

    Returns:
        Files that asv could not read, which are left out.
    """
    problems = unreadable_files(results)
    bad = {problem.path for problem in problems}
    listed = results / "benchmarks.json"
    theirs: dict[str, Any] = {}
    if listed.is_file() and listed not in bad:
        every = json.loads(listed.read_text(encoding="utf-8"))
        theirs = {k: v for k, v in every.items() if k != "version" and not is_ours(k, v)}
    view.mkdir(parents=True, exist_ok=True)
    _write_list(view, theirs)
    for path in sorted(results.rglob("*.json")):
        if path in bad or path == listed or not path.is_file():
            continue
        results_in = json.loads(path.read_bytes()).get("results", {})
        if path.name == "machine.json" or theirs.keys() & results_in.keys():
            target = view / path.relative_to(results)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, target)
            except OSError:  # another file system
                shutil.copy2(path, target)
    return problems


def _write_list(view: Path, benchmarks: Mapping[str, Any]) -> None:
    text = json.dumps({**benchmarks, "version": Benchmarks.api_version})
    (view / "benchmarks.json").write_text(text, encoding="utf-8")


def write_ours(root: Path, view: Path, suite: OwnSuite, without: Iterable[str] = ()) -> None:
    """Write the suite's benchmarks and values beside those of the project.

    Args:
        root: Root of the project, for the dates of commits.
        view: Folder from ``write_foreign``.
        suite: The records.
        without: Metrics to leave out.
    """
    ours = suite.benchmarks(without)
    theirs = json.loads((view / "benchmarks.json").read_text(encoding="utf-8"))
    _write_list(view, {name: one for name, one in theirs.items() if name != "version"} | ours)
    groups: dict[ResultsPlace, dict[AsvOperation, list[RunRecord]]] = {}
    for operation, records in suite.records.items():
        for record in records:
            groups.setdefault(place_of(record), {}).setdefault(operation, []).append(record)
    for place, parts in groups.items():
        written = results_of(root, view, place, next(iter(parts.values()))[0])
        for operation, records in parts.items():
            for metric in METRICS:
                if benchmark := ours.get(operation.benchmark(metric)):
                    _add(written, benchmark, operation, records, METRICS[metric].value)
        written.save(str(view))


def results_of(root: Path, view: Path, place: ResultsPlace, record: RunRecord) -> Any:  # noqa: ANN401  (asv has no types)
    """Return asv's results of a place, with those of the project's suite if there are any.

    Args:
        root: Root of the project.
        view: Folder that asv reads; the machine is written there if it is missing.
        place: The place.
        record: Any record of it.
    """
    write_machine(view, place.machine, asv_machine(record.machine))
    requirements = {"torch": place.torch} if place.torch else {}
    variables = {} if place.device == "cpu" else {DEVICE_VARIABLE: place.device}
    tool = "existing" if place.existing else "locked"
    params = {"machine": place.machine, "python": place.python, **requirements}
    if place.existing:
        params["environment"] = "existing"  # separates it from the locked cell
    tagged = {("env_nobuild", name): value for name, value in variables.items()}
    found = Results(
        params,
        requirements,
        place.commit,
        _date_of(root, place.commit, record.recorded_at),
        place.python,
        get_env_name(tool, place.python, requirements, tagged),
        variables,
    )
    found.load_data(str(view))
    # A link to the project's own file: asv would write into that.
    (view / found._filename).unlink(missing_ok=True)  # noqa: SLF001  (asv has no name for it)
    return found


def write_places(root: Path, view: Path, suite: OwnSuite) -> None:
    """Write a file without values for each commit and Python of the suite's records.

    So asv's site knows the commits and machines; ``ivhl.asv.graphs`` adds the values.
    """
    for record in {
        place_of(r)._replace(torch=""): r for rs in suite.records.values() for r in rs
    }.values():
        place = place_of(record)
        params = {"machine": place.machine, **site_params(record)}
        write_machine(view, place.machine, asv_machine(record.machine))
        name = "-".join(("ivhl", *site_params(record).values()))
        date = _date_of(root, record.commit, record.recorded_at)
        Results(params, {}, place.commit, date, place.python, name, {}).save(str(view))


def site_params(record: RunRecord) -> dict[str, str]:
    """Return the parameters of asv's graphs, beside the machine and the branch.

    The PyTorch release is none of them but a parameter of the benchmark: asv can draw only such
    along the x-axis.
    """
    kind = "existing" if is_existing(record) else "locked"
    return {"python": record.cell.python, "device": device_type(record), "environment": kind}


@cache
def _date_of(root: Path, commit: str, recorded_at: str) -> int:
    """Return when a commit was made, in ms; if the clone lacks it, when it was measured."""
    try:
        return commit_time_ms(root, commit)
    except SpecError:
        return int(datetime.fromisoformat(recorded_at).timestamp() * 1000)


def scalar(values: Mapping[str, Any], key: str) -> float | None:
    """Return one metric from ``values_of``, the median of samples; ``None`` if it is missing."""
    found = values.get(key)
    return median(found) if isinstance(found, list) else found


def _add(
    written: Any,  # noqa: ANN401
    benchmark: Mapping[str, Any],
    operation: AsvOperation,
    records: Sequence[RunRecord],
    key: str,
) -> None:
    by_case = {(record.size, record.variant): values_of(record) for record in records}
    cases = [(size, variant) for size in operation.sizes for variant in operation.variants]
    # NaN is asv's "not applicable": the case was not run, or has no such value.
    values = [_value(by_case[case], key) if case in by_case else float("nan") for case in cases]
    samples = [value if isinstance(value, list) else None for value in values]
    newest = datetime.fromisoformat(max(record.recorded_at for record in records))
    result = BenchmarkResult(
        result=[True if one else value for value, one in zip(values, samples, strict=True)],
        samples=samples,
        number=[one and 1 for one in samples],
        errcode=0,
        stderr="",
        profile=None,
    )
    written.add_result(benchmark, result, started_at=newest)


def _value(values: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401  (number, samples or nothing)
    found = values.get(key)
    if isinstance(found, list):
        return found if len(found) > 1 else median(found)
    if found is None and values["failure"] is None:
        return float("nan")
    return found
