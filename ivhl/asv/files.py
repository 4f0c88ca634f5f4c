"""asv's files of results, made from the records each time that ``asv publish`` reads them.

The records are the history; asv's files have its commits and machines, so nothing has to keep the
two alike. Results of the project's own asv suite stand beside them.
"""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

from asv.benchmarks import Benchmarks
from asv.machine import Machine as AsvMachine
from asv.results import Results

from ivhl.asv.machine import asv_machine, known_machine
from ivhl.asv.unreadable import unreadable_files
from ivhl.errors import SpecError
from ivhl.git import commit_time_ms
from ivhl.measure.suite import AsvOperation, is_absent, operation_of
from ivhl.records.files import write_whole
from ivhl.tracker.store.records import Problem, device_type, grouped_by, is_existing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ivhl.records.record import RunRecord
    from ivhl.workload import Workload


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
        groups = grouped_by(records, lambda record: record.workload)
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
        theirs = json.loads(listed.read_text(encoding="utf-8"))
        theirs.pop("version", None)
    view.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**theirs, "version": Benchmarks.api_version})
    (view / "benchmarks.json").write_text(text, encoding="utf-8")
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


def write_places(root: Path, view: Path, suite: OwnSuite) -> None:
    """Write a file without values for each commit and Python of the suite's records.

    So asv's site knows the commits and machines; ``ivhl.asv.graphs`` adds the values.
    """
    places = {
        (r.machine.name, r.commit, *site_params(r).values()): r
        for records in suite.records.values()
        for r in records
    }
    for (machine, commit, *values), record in places.items():
        write_machine(view, machine, asv_machine(record.machine))
        params = {"machine": machine, **site_params(record)}
        date = _date_of(root, commit, record.recorded_at)
        name = "-".join(("ivhl", *values))
        Results(params, {}, commit, date, record.cell.python, name, {}).save(str(view))


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
