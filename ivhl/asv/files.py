"""Write asv's result files from records, as asv would have written them on their machines."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from asv.benchmarks import Benchmarks
from asv.environment import get_env_name
from asv.machine import Machine as AsvMachine
from asv.results import Results
from asv.runner import BenchmarkResult

from ivhl.asv import capture
from ivhl.asv.configuration import DEVICE_VARIABLE
from ivhl.asv.export import AsvBenchmarks, read_suite
from ivhl.asv.machine import known_machine
from ivhl.git import commit_time_ms
from ivhl.measure.suite import is_absent, values_of
from ivhl.records.files import write_whole
from ivhl.records.store import case_name, device_type, is_existing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.measure.settings import Settings
    from ivhl.records.record import RunRecord


class ResultPlace(NamedTuple):
    """Identifies one of asv's result files.

    Attributes:
        existing: Whether it was measured in an existing environment, which no lock describes.
    """

    machine: str
    commit: str
    python: str
    torch: str
    device: str
    existing: bool


def place_of(record: RunRecord) -> ResultPlace:
    """Return the place of a record in asv's result files."""
    cell = record.cell
    return ResultPlace(
        machine=record.machine.name,
        commit=record.commit,
        python=cell.python,
        torch=cell.torch,
        device=device_type(record),
        existing=is_existing(record),
    )


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


def write_asv_results(
    root: Path,
    settings: Settings,
    records: Sequence[RunRecord],
    places: Iterable[ResultPlace],
) -> None:
    """Write asv's list of benchmarks, and its result files of the given places.

    Values of other cases and benchmarks in these files are kept.

    Args:
        root: Root of the project.
        settings: See ``read_suite``; the files are written to its results folder.
        records: The newest record of each key, from all places.
        places: Places whose records have changed.

    Raises:
        ResultsError: If the benchmarks do not import, or a file cannot be written.
    """
    capture.install()  # so that failures become points
    wanted = set(places)
    results = Path(settings.results)
    groups: dict[ResultPlace, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: record.workload_version):
        if (place := place_of(record)) in wanted:
            groups.setdefault(place, []).append(record)
    listed: dict[str, dict[str, Any]] = {}
    # Some cases exist on one device only, and asv's list must contain all cases with results.
    for device in sorted({device_type(record) for record in records}):
        here = {place: group for place, group in sorted(groups.items()) if place.device == device}
        there = replace(settings, effort=replace(settings.effort, device=device))
        suite = _suite_of(there, list(here.values()))
        _join(listed, suite.benchmarks)
        for (place, group), values in zip(here.items(), suite.values, strict=True):
            written = _results_of(root, results, place)
            _write_results(written, results, group, suite.benchmarks, values)
    if wanted:
        data = listed | {"version": Benchmarks.api_version}
        text = json.dumps(data, indent=4, sort_keys=True)
        write_whole(results / "benchmarks.json", text.encode(), results)


def _suite_of(settings: Settings, groups: Sequence[Sequence[RunRecord]]) -> AsvBenchmarks:
    # Records are sorted by version of the workload: in this dictionary, the newest version wins.
    cells = [{case_name(r): values_of(r) for r in group if not is_absent(r)} for group in groups]
    return read_suite(settings, cells)


def _join(listed: dict[str, dict[str, Any]], benchmarks: Sequence[dict[str, Any]]) -> None:
    """Add benchmarks to the list, and missing cases to those that are in it."""
    for benchmark in benchmarks:
        known = listed.setdefault(benchmark["name"], benchmark)
        if known is not benchmark and known["params"]:
            (old, *_), (new, *_) = known["params"], benchmark["params"]
            known["params"] = [[*old, *(case for case in new if case not in old)]]


def _write_results(
    written: Any,  # noqa: ANN401  (asv has no types)
    results: Path,
    group: Sequence[RunRecord],
    benchmarks: Sequence[dict[str, Any]],
    values: dict[str, list[Any]],
) -> None:
    ours = {repr(case_name(record)) for record in group}
    newest = datetime.fromisoformat(max(record.recorded_at for record in group))
    for benchmark in benchmarks:
        if benchmark["name"] not in values:  # the project's own benchmark, which has no cases
            continue
        (cases,) = benchmark["params"]
        written.add_result(
            benchmark,
            _benchmark_result(values[benchmark["name"]]),
            started_at=newest,
            selected_idx={i for i, case in enumerate(cases) if case in ours},
        )
        took = sum(record.duration_s for record in group)
        written.set_setup_cache_duration(benchmark["setup_cache_key"], round(took, 3))
    # asv writes in place; a truncated file would remove all its values from the site.
    with tempfile.TemporaryDirectory(prefix="ivhl-import-") as name:
        written.save(name)
        (path,) = Path(name).glob("*/*.json")
        write_whole(results / place_of(group[0]).machine / path.name, path.read_bytes(), results)


def _results_of(root: Path, results: Path, place: ResultPlace) -> Any:  # noqa: ANN401  (asv has no types)
    """Return asv's results of a place, with the stored ones."""
    requirements = {"torch": place.torch}
    variables = {} if place.device == "cpu" else {DEVICE_VARIABLE: place.device}
    tool = "existing" if place.existing else "locked"
    machine = known_machine(results, place.machine)
    machine.pop("version", None)
    params = machine | {"python": place.python} | requirements
    if place.existing:
        params["environment"] = "existing"  # separates its graphs from those of the locked cell
    found = Results(
        params,
        requirements,
        place.commit,
        commit_time_ms(root, place.commit),
        place.python,
        get_env_name(
            tool, place.python, requirements, {("env_nobuild", n): v for n, v in variables.items()}
        ),
        variables,
    )
    found.load_data(str(results))
    return found


def _benchmark_result(values: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return values in the form of asv's runner: samples separate from single numbers."""
    sampled = [value if isinstance(value, dict) else None for value in values]
    return BenchmarkResult(
        result=[
            value if one is None else True for value, one in zip(values, sampled, strict=True)
        ],
        samples=[one and one["samples"] for one in sampled],
        number=[one and one["number"] for one in sampled],
        errcode=0,
        stderr="",
        profile=None,
    )
