"""Our verdicts on asv's page *Regressions*, in place of asv's own: nobody is told two things.

asv looks at each of its graphs by itself. It knows neither that a commit changes nothing of a case,
nor that two records were measured in different ways, nor on which side a ratio moved.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from asv.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from ivhl.tracker.changes import Kind
    from ivhl.tracker.expectations import Expectation
    from ivhl.tracker.regressions import Change

FILE: Final = "regressions.json"
FEED: Final = "regressions.xml"
# The graph that a change is shown in: asv calls what rises a regression. A series that stopped has
# no jump that asv could draw.
_GRAPHS: Final[dict[Kind, str]] = {
    "fails": "track_failed",
    "degraded": "track_relative_time",
    "slower": "track_relative_time",
}


def write_verdicts(
    site: Path,
    changes: Iterable[Change],
    feed: Path,
    expected: Callable[[Change], Expectation | None] = lambda _: None,
) -> None:
    """Replace the list behind asv's page *Regressions*, and its feed.

    Args:
        site: A site that ``asv publish`` wrote.
        changes: What ``find_changes`` found; asv has commits only, and lists what got worse.
        feed: Our feed, in the folder above.
        expected: Returns the known failure that a change is, if it is one.
    """
    main = json.loads((site / "index.json").read_text(encoding="utf-8"))
    found = (_entry(site, main, change, expected(change)) for change in changes)
    listed = [entry for entry in found if entry is not None]
    (site / FILE).write_text(json.dumps({"regressions": listed}), encoding="utf-8")
    text = feed.read_text(encoding="utf-8").replace('href="', 'href="../')
    (site / FEED).write_text(text, encoding="utf-8")


def _entry(
    site: Path, main: Mapping[str, Any], change: Change, entry: Expectation | None
) -> list[object] | None:
    """Return a change as asv lists it; ``None`` if it is not one that asv has a graph of."""
    if change.along != "commit" or change.kind not in _GRAPHS:
        return None
    benchmark = _benchmark(main, _GRAPHS[change.kind])
    place = next((int(r) for r, h in main["revision_to_hash"].items() if h == change.place), None)
    params = next((p for p in main["graph_param_list"] if _is_of(p, change)), None)
    case = repr(change.case.name)
    if benchmark is None or place is None or params is None or case not in benchmark["params"][0]:
        return None
    number = benchmark["params"][0].index(case)
    path = Graph.get_file_path(params, benchmark["name"])
    values = _values(site / f"{path}.json", number)
    before = [revision for revision in values if revision < place]
    if place not in values or not before:
        return None
    last, was, now = values[max(values)], values[max(before)], values[place]
    # Those in which the project has several: asv's links name no others.
    shown = {name: value for name, value in params.items() if len(main["params"][name]) > 1}
    where = f"Python {change.case.python}, PyTorch {change.case.torch}, {change.case.machine}"
    kind = change.kind if entry is None else f"fails, expected: {entry.why}"
    text = f"{benchmark['name']}({change.case.name}: {kind} on {where})"
    jump = [max(before), place, was, now]
    return [text, f"{path}.json", shown, number, last, min(values.values()), [jump]]


def _benchmark(main: Mapping[str, Any], ending: str) -> dict[str, Any] | None:
    for name, benchmark in main["benchmarks"].items():
        if name.endswith(f".{ending}"):
            return {**benchmark, "name": name}
    return None


def _is_of(params: Mapping[str, str], change: Change) -> bool:
    case = change.case
    wanted = {"machine": case.machine, "python": case.python, "torch": case.torch}
    existing = params.get("environment") == "existing"
    return existing == case.existing and all(params.get(n) == value for n, value in wanted.items())


def _values(graph: Path, number: int) -> dict[int, float]:
    """Return the values of one case in a graph, by revision."""
    if not graph.is_file():
        return {}
    points = json.loads(graph.read_text(encoding="utf-8"))
    return {
        revision: values[number]
        for revision, values in points
        if isinstance(values, list) and values[number] is not None
    }
