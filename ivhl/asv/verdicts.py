"""What ``ivhl regressions`` lists, on asv's page *Regressions*.

asv looks at each of its graphs by itself. It knows neither that a commit changes nothing of a case,
nor that two records were measured in different ways, nor on which side a ratio moved. So our
verdicts stand there, and asv's own only for the project's own asv suite.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from ivhl.asv.files import scalar
from ivhl.measure.suite import METRICS, values_of
from ivhl.records.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.asv.graphs import Graphs
    from ivhl.measure.suite import AsvOperation
    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.regressions import Change
    from ivhl.tracker.store.metrics import Metric

FILE: Final = "regressions.json"
# The graph in which a change is seen, by what its effect is a factor of.
_GRAPHS: Final[dict[Metric, str]] = {
    "eager": "eager_time",
    "compiled": "compiled_time",
    "cold": "compile_time",
    "memory": "peak_memory",
}
_WORDS: Final = {"commit": "commit", "torch": "PyTorch", "python": "Python"}
_HASH: Final = 8


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
    commits = [h[:_HASH] for h in (change.before, change.place)] if along == "commit" else []
    if commits and None not in revisions:
        url["commits"] = "-".join(commits)
    entry = graphs.source.known.expected(change)
    kind = change.kind if entry is None else f"{change.kind}, expected: {visible(entry.why)}"
    place = ", ".join(
        (f"{kind} on {case.machine}", *(f"{_WORDS[k]} {v}" for k, v in where.items()))
    )
    name = f"{benchmark}({case.size}, {case.variant}: {place})"
    ours = {
        "kind": change.kind,
        "state": change.state,
        "along": along,
        "place": f"{_WORDS[along]} {_short(change, change.before)} \N{RIGHTWARDS ARROW} "
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
    return name[:_HASH] if change.along == "commit" else name


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
