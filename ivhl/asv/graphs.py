"""Our benchmarks on asv's pages: graphs, grid, list, failures and regressions, from the records.

asv would take the mean over all machines for its grid, find steps of its own in each series, and
write a row for each combination of parameters, most of which nobody measured. It looks at each of
its graphs by itself: it knows neither that a commit changes nothing of a case, nor that two records
were measured in different ways, nor on which side a ratio moved. So the verdicts of ``ivhl
regressions`` stand on its page *Regressions*, and asv's own only for the project's own asv suite.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from asv.graph import Graph
from asv.repo import get_repo

from ivhl.asv.files import OwnSuite, scalar, site_params
from ivhl.measure.suite import METRICS, AsvOperation, values_of
from ivhl.records.text import visible
from ivhl.tracker.changes.regressions import ALONG_WORDS, Change
from ivhl.tracker.store.course import HASH
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.wording import counted, short_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ivhl.records.record import Failure, RunRecord
    from ivhl.tracker.store.metrics import Metric
    from ivhl.tracker.views.source import Source


_LONGEST_MESSAGE: Final = 200
# Of fewer, a graph along commits shows nothing: it is drawn along releases.
_FEWEST_COMMITS: Final = 3
# Metrics on asv's page "Benchmark list", which takes what rises for worse.
_LISTED: Final = ("relative_time", "failed")


class GraphLine(NamedTuple):
    """What one file of a graph shows, beside the branch."""

    machine: str
    python: str
    device: str
    environment: str


class Graphs:
    """Writes our benchmarks into a site that ``asv publish`` has just written.

    Args:
        conf: asv's configuration.
        suite: The records.
        source: The same project, for what is judged.
    """

    def __init__(self, conf: Any, suite: OwnSuite, source: Source) -> None:  # noqa: ANN401  (asv has no types)
        self.html = Path(conf.html_dir)
        self.suite = suite
        self.source = source
        self.index = json.loads((self.html / "index.json").read_text(encoding="utf-8"))
        self.revisions = {h: int(r) for r, h in self.index["revision_to_hash"].items()}
        repo = get_repo(conf)
        self.branches = {
            repo.get_branch_name(branch): set(repo.get_branch_commits(branch))
            for branch in conf.branches
        }
        self._known: list[dict[str, Any]] = self.index["graph_param_list"]
        self.index["theirs"] = len(self._known)
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def write(self) -> None:
        """Write everything but the list of regressions (``ivhl.asv.graphs``)."""
        (self.html / "failures").mkdir()
        theirs = self.index["benchmarks"]
        self.index["benchmarks"] = {}
        for operation, records in self.suite.records.items():
            self._write(operation, records)
        self.index["benchmarks"] |= theirs
        for path, rows in self._rows.items():
            self._dump(path, sorted(rows, key=lambda row: (row["name"], row["idx"])))
        self._dump("index.json", self.index)

    def _number_of(self, line: GraphLine, branch: str) -> int:
        """Return the number of a set of parameters in the list of the site; add it if it is new."""
        ours = {**line._asdict(), "branch": branch}
        params = {key: ours.get(key) for key in {**self.index["params"], **ours}}
        if params not in self._known:
            self._known.append(params)
            for key, value in params.items():
                values = self.index["params"].setdefault(key, [])
                if value not in values:
                    values.insert(0 if value is None else len(values), value)
        return self._known.index(params)

    def _path_of(self, number: int, benchmark: str) -> str:
        return f"{Graph.get_file_path(self._known[number], benchmark)}.json"

    def _write(self, operation: AsvOperation, records: Sequence[RunRecord]) -> None:
        torches = sorted({record.cell.torch for record in records}, key=release_key)
        axes = (operation.sizes, operation.variants, tuple(torches))
        cases = list(product(*axes))
        place = {case: number for number, case in enumerate(cases)}  # as asv counts them
        by_line = grouped_by(records, line_of)
        cell = self._cell(operation, records)
        graphs: list[int] = []
        for metric, about in METRICS.items():
            self.index["benchmarks"][operation.benchmark(metric)] = {
                "name": operation.benchmark(metric),
                "code": f"{about.title} {operation.workload}",
                "type": "track",
                "unit": about.unit,
                "version": "1",
                "param_names": ["size", "variant", "torch"],
                "params": [[repr(value) for value in axis] for axis in axes],
                "start": _starts(operation, metric, torches, by_line, cell[0]) if cell else {},
                "failures": f"failures/{operation.name}.json",
                "graphs": graphs,
                "grid": self._grid(operation, *cell) if cell and metric == "speedup" else None,
            }
        self._dump(f"failures/{operation.name}.json", list(self._failures(records)))
        for line, group in by_line.items():
            for branch, commits in self.branches.items():
                here = commits & self.revisions.keys()
                points: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
                for one in group:
                    if one.commit in here:
                        number = place[one.size, one.variant, one.cell.torch]
                        points[self.revisions[one.commit]][number] = values_of(one)
                if not points:
                    continue
                graphs.append(self._number_of(line, branch))
                for metric in METRICS:
                    self._write_graph(operation, metric, graphs[-1], cases, points)

    def _write_graph(
        self,
        operation: AsvOperation,
        metric: str,
        number: int,
        cases: Sequence[tuple[str, ...]],
        points: Mapping[int, Mapping[int, Mapping[str, Any]]],
    ) -> None:
        """Write a graph, and the rows of the list.

        Args:
            operation: The workload.
            metric: The metric to draw.
            number: See ``_number_of``.
            cases: All combinations of the benchmark's parameters.
            points: Values of the cases by revision and number of the combination of parameters.
        """
        data: list[list[Any]] = []
        # Revision and value, and those before.
        last: dict[int, tuple[Any, ...]] = {}
        for revision, values in sorted(points.items()):
            drawn: list[float | None] = [None] * len(cases)
            for case, found in values.items():
                drawn[case] = value = scalar(found, METRICS[metric].value)
                if value is not None:
                    last[case] = revision, value, *last.get(case, (None, None))[:2]
            data.append([revision, drawn])
        benchmark = operation.benchmark(metric)
        self._dump(self._path_of(number, benchmark), data)
        if metric not in _LISTED:
            return
        self._rows[self._path_of(number, "summary")] += (
            {
                "name": benchmark,
                "idx": case,
                "pretty_name": f"{benchmark}({', '.join(map(repr, cases[case]))})",
                "last_rev": revision,
                "last_value": value,
                "last_err": 0,
                "prev_value": was,
                "change_rev": None if changed is None else [changed, revision],
            }
            for case, (revision, value, changed, was) in last.items()
            if value or was  # not each case that works
        )

    def _cell(
        self, operation: AsvOperation, records: Iterable[RunRecord]
    ) -> tuple[GraphLine, str] | None:
        """Return line and PyTorch of the newest default cell, in the main place if it has one."""
        state, main = self.source.state, self.source.page.main

        def rank(cell: tuple[GraphLine, str]) -> tuple[object, ...]:
            (machine, python, device, _), torch = cell
            default = python in (state.pythons or ()) and torch in (state.releases or ())
            return (machine, device) == main, default, python_key(python), release_key(torch), cell

        here = [record for record in records if record.commit in self.revisions]
        core = [record for record in here if _is_core(operation, record)]
        cells = {(line_of(record), record.cell.torch) for record in core or here or records}
        return max(cells, key=rank, default=None)

    def _grid(self, operation: AsvOperation, line: GraphLine, torch: str) -> dict[str, str]:
        """Write the sparkline of an operation in a cell; return what the grid says beside it."""
        core = [
            record
            for record in sorted(self.suite.records[operation], key=self._age)
            if _is_core(operation, record) and _is_beside(line_of(record), line)
        ]
        values = {
            self.revisions[record.commit]: record.speedup.value if record.speedup else None
            for record in core
            if (line_of(record), record.cell.torch) == (line, torch)
            and record.commit in self.revisions
        }
        drawn, along = sorted(values.items()), "commits"
        if len(drawn) < _FEWEST_COMMITS:
            by_torch = {
                record.cell.torch: record.speedup.value if record.speedup else None
                for record in core
                if line_of(record) == line
            }
            releases = sorted(by_torch, key=release_key)
            drawn, along = [(n, by_torch[name]) for n, name in enumerate(releases)], "releases"
        self._dump(f"graphs/summary/{operation.benchmark('speedup')}.json", drawn)
        cells = {record.cell.id: record.failure is not None for record in core}
        now = values[max(values)] if values else None
        where = (line.machine, f"Python {line.python}", f"PyTorch {torch}")
        return {
            "name": operation.name.partition(".")[2],
            "now": "no speedup" if now is None else f"{now:.2f}x",
            "where": f"{', '.join((operation.sizes[0], operation.variants[0], *where))}; "
            f"drawn along {along}",
            "failed": f"fails in {sum(cells.values())} of {counted(len(cells), 'cell')}"
            if any(cells.values())
            else "",
            "speedup": operation.benchmark("speedup"),
            "link": operation.benchmark("failed"),
        }

    def _age(self, record: RunRecord) -> tuple[int, str]:
        return self.revisions.get(record.commit, -1), record.recorded_at

    def _failures(self, records: Iterable[RunRecord]) -> Iterator[dict[str, Any]]:
        """Yield the failed records, the last of each case and cell first."""
        ordered = sorted(records, key=self._age)
        cases = grouped_by(ordered, lambda r: (line_of(r), r.cell.torch, r.size, r.variant))
        for now in (True, False):
            for group in cases.values():
                for record in group[-1:] if now else group[:-1]:
                    if record.failure is not None:
                        yield self._failure(record, record.failure, now=now)

    def _failure(self, record: RunRecord, failure: Failure, *, now: bool) -> dict[str, Any]:
        message = visible(short_message(failure.message, _LONGEST_MESSAGE))
        return {
            **line_of(record)._asdict(),
            "torch": record.cell.torch,
            "size": record.size,
            "variant": record.variant,
            "revision": self.revisions.get(record.commit),
            "commit": record.commit[:8],
            "why": f"{failure.failure_class} in {failure.phase}: {message}",
            "now": now,
        }

    def _dump(self, path: str, data: object) -> None:
        target = self.html / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")


def line_of(record: RunRecord) -> GraphLine:
    """Return the line of a record."""
    return GraphLine(record.machine.name, **site_params(record))


def _is_core(operation: AsvOperation, record: RunRecord) -> bool:
    return (record.size, record.variant) == (operation.sizes[0], operation.variants[0])


def _is_beside(one: GraphLine, other: GraphLine) -> bool:
    """Return whether two lines differ in the Python only."""
    return one._replace(python=other.python) == other


def _starts(
    operation: AsvOperation,
    metric: str,
    torches: Iterable[str],
    by_line: Mapping[GraphLine, Sequence[RunRecord]],
    line: GraphLine,
) -> dict[str, Any]:
    """Return what a benchmark's page shows first, along commits and along releases, and which."""
    beside = [one for one in by_line if _is_beside(one, line)]
    every = sorted((one.python for one in beside), key=python_key)

    def history(one: GraphLine) -> tuple[int, int, object]:
        core = [r for r in by_line[one] if _is_core(operation, r)]
        commits, releases = {r.commit for r in core}, {r.cell.torch for r in core}
        return len(commits), len(releases), python_key(one.python)

    longest = max(beside, key=history)
    shown = {
        "machine": [line.machine],
        "device": [line.device],
        "environment": [line.environment],
        "p-size": [repr(operation.sizes[0])],
        "p-variant": [repr(operation.variants[0])],
        "p-torch": [repr(torch) for torch in torches],
    }
    return {
        "axis": "torch" if history(longest)[0] < _FEWEST_COMMITS else "commit",
        "commit": shown | {"python": every if metric == "failed" else [longest.python]},
        "torch": shown | {"python": every},
    }


FILE: Final = "regressions.json"
# The graph in which a change is seen, by what its effect is a factor of.
_GRAPHS: Final[dict[Metric, str]] = {
    "eager": "eager_time",
    "compiled": "compiled_time",
    "cold": "compile_time",
    "memory": "peak_memory",
}


def add_verdicts(graphs: Graphs, changes: Iterable[Change]) -> None:
    """Add what got worse to the list behind asv's page.

    Args:
        graphs: The site.
        changes: What ``ivhl regressions`` found.
    """
    by_name = {one.workload: (one, rs) for one, rs in graphs.suite.records.items()}
    found = [
        _entry(graphs, *by_name[change.case.workload], change)
        for change in changes
        if change.case.workload in by_name
    ]
    path = graphs.html / FILE
    theirs = json.loads(path.read_text(encoding="utf-8"))["regressions"]
    path.write_text(json.dumps({"regressions": [*found, *theirs]}), encoding="utf-8")


def _entry(
    graphs: Graphs, operation: AsvOperation, records: list[RunRecord], change: Change
) -> list[Any]:
    """Return a change as asv lists it, and with it what asv has no place for."""
    case, along = change.case, change.along
    metric = "failed" if change.kind == "fails" else _GRAPHS.get(change.effect_of, "speedup")
    benchmark = operation.benchmark(metric)
    ends = [_record_at(records, change, name) for name in (change.before, change.place)]
    was, now = (
        None if one is None else scalar(values_of(one), METRICS[metric].value) for one in ends
    )
    revisions = [None if one is None else graphs.revisions.get(one.commit) for one in ends]
    where = {name: value for name in ("python", "torch") if (value := getattr(case, name))}
    url = {"machine": case.machine, "device": case.device}
    url |= {"environment": "existing" if case.existing else "locked"}
    url |= {"p-size": repr(case.size), "p-variant": repr(case.variant)}
    if "python" in where:
        url["python"] = case.python
    if along in ("torch", "commit"):
        url["x-axis"] = along
    if "torch" in where:
        url["p-torch"] = repr(case.torch)
    commits = [h[:HASH] for h in (change.before, change.place)] if along == "commit" else []
    if commits and None not in revisions:
        url["commits"] = "-".join(commits)
    entry = graphs.source.known.expected(change)
    kind = change.kind if entry is None else f"{change.kind}, expected: {visible(entry.why)}"
    place = ", ".join(
        (f"{kind} on {case.machine}", *(f"{ALONG_WORDS[k]} {v}" for k, v in where.items()))
    )
    name = f"{benchmark}({case.size}, {case.variant}: {place})"
    ours = {
        "kind": change.kind,
        "state": change.state,
        "along": along,
        "place": f"{ALONG_WORDS[along]} {_short(change, change.before)} \N{RIGHTWARDS ARROW} "
        f"{_short(change, change.place)}",
        "factor": kind.partition(":")[0]
        if change.effect is None
        else f"{change.effect:.2f}x {change.effect_of}",
        "reason": visible(change.reason),
        "at": change.at,
        "url": f"#{benchmark}?{urlencode(url)}",
    }
    jump = [*(revisions if along == "commit" else (None, None)), was, now]
    branch = next((b for b, commits in graphs.branches.items() if change.place in commits), None)
    params = {"branch": branch or next(iter(graphs.branches))}
    return [name, "", params, None, now, was, [jump], ours]


def _short(change: Change, name: str) -> str:
    return name[:HASH] if change.along == "commit" else name


def _record_at(records: Iterable[RunRecord], change: Change, name: str) -> RunRecord | None:
    """Return the record at one end of a change; of several commits, the newest one."""
    case, along = change.case, change.along
    ends = [
        record
        for record in records
        if (record.machine.name, record.size, record.variant)
        == (case.machine, case.size, case.variant)
        and (along == "python" or record.cell.python == case.python)
        and (along == "torch" or record.cell.torch == case.torch)
        and name
        == {"commit": record.commit, "torch": record.cell.torch}.get(along, record.cell.python)
    ]
    # The end after the change is known by its time, and the other end is of the same commit.
    exact = [record for record in ends if record.recorded_at == change.at]
    return max(exact or ends, key=lambda record: record.recorded_at, default=None)
