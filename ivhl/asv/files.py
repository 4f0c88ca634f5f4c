"""asv's files of results, made from the records each time that ``asv publish`` reads them.

The records are the history; asv's files have its commits and machines, so nothing has to keep the
two alike. Results of the project's own asv suite stand beside them. Of
those, files that asv cannot read are left out: such a file stops asv, or it skips it without a word.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from asv.benchmarks import Benchmarks
from asv.machine import Machine
from asv.results import Results
from asv.util import load_json

from ivhl.asv.machine import asv_machine, known_machine
from ivhl.errors import SpecError
from ivhl.git import commit_time_ms
from ivhl.measure.suite import AsvOperation, is_absent, operation_of
from ivhl.pages.folder import link_or_copy
from ivhl.records.files import write_whole
from ivhl.tracker.store.records import Problem, device_type, grouped_by, is_existing

if TYPE_CHECKING:
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
        text = json.dumps({**about, "version": Machine.api_version}, indent=4, sort_keys=True)
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
            link_or_copy(path, target)
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


_LONGEST_PART: Final = 240  # a part of a path has at most 255, and asv adds an ending


def foreign_files(results: Path) -> tuple[Path, ...]:
    """Return the files in the results folder that asv would read, and that neither made."""
    return tuple(
        path
        for path in sorted(results.rglob("*.json"))
        if path != results / "benchmarks.json"
        and not (
            path.parent.parent == results
            and ((path.parent / "machine.json").exists() or (path.parent / "records").is_dir())
        )
    )


def unreadable_files(results: Path) -> tuple[Problem, ...]:
    """Return asv's files that ``asv publish`` would skip, or on which it would stop.

    asv reads every ``*.json`` below its results. On some invalid files it stops with a traceback
    after it has deleted the old site.
    """
    listed = results / "benchmarks.json"
    return tuple(
        Problem(path, None, rule)
        for path in sorted(results.rglob("*.json"))
        if not path.is_dir() and (rule := _why_unreadable(path, is_list=path == listed))
    )


def _why_unreadable(path: Path, *, is_list: bool) -> str:
    # A pipe would never end, and a device never be read.
    if not path.is_file():
        return "must be a plain file"
    try:
        if is_list:
            return _list_mistake(load_json(str(path), Benchmarks.api_version))
        if path.name == "machine.json":
            return _machine_mistake(load_json(str(path), Machine.api_version), path.parent.name)
        return _results_mistake(Results.load(str(path)))
    except Exception as error:  # noqa: BLE001  (a bad file can make asv raise anything)
        # The site is public, and asv's messages contain folder names of this machine.
        message = str(error).replace(str(path), path.name)
        return f"asv cannot read it: {type(error).__name__}: {message}"


def _machine_mistake(about: dict[str, Any], folder: str) -> str:
    if about.get("machine") != folder:
        return (
            f"machine: must be {folder!r}, the name of its folder (got {about.get('machine')!r})"
        )
    return _params_mistake({key: value for key, value in about.items() if key != "version"})


def _results_mistake(loaded: Any) -> str:  # noqa: ANN401  (asv has no types)
    if rule := _params_mistake(loaded.params | loaded.env_vars):
        return rule
    for name in loaded.get_all_result_keys():
        values = loaded.get_result_value(name, loaded.get_result_params(name) or [])
        if not _publishable(values):
            return f"{name}: a result must be a finite number or null (got {values!r})"
    return ""


def _list_mistake(benchmarks: Mapping[str, Any]) -> str:
    """Return the mistake in a list of benchmarks; their names become file names and addresses."""
    for name, benchmark in benchmarks.items():
        if name != "version" and not (
            re.fullmatch(r"[\w.]{1,200}", name, re.ASCII) and benchmark["name"] == name
        ):
            return (
                f"a benchmark must have the name of a function (got {ascii(name)[:_LONGEST_PART]})"
            )
    return ""


def _params_mistake(params: Mapping[str, Any]) -> str:
    """Return the mistake in parameters of asv's graphs: each is a part of a path."""
    for key, value in params.items():
        if not isinstance(value, str | None):
            return f"{ascii(key)[:_LONGEST_PART]}: must be a string (got {type(value).__name__})"
        if len(f"{key}-{value}".encode()) > _LONGEST_PART:
            got = len(f"{key}-{value}".encode())
            return f"{ascii(key)[:20]}: may have {_LONGEST_PART} bytes with its value (got {got})"
    return ""


def _publishable(values: object) -> bool:
    """Return whether asv can publish these values; it writes NaN for a skipped benchmark."""
    if isinstance(values, str | dict):
        return False
    if isinstance(values, Iterable):
        return all(_publishable(value) for value in values)
    return values is None or (isinstance(values, int | float) and not math.isinf(values))
