"""The operands of a comparison: results of one machine in one cell, at a commit or newest.

The page *Compare* loads two of them and compares them in the browser. It shows by what runs of the
same code differ; verdicts over many cases are those of ``ivhl compare``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from ivhl.records.age import recorded_rank
from ivhl.tracker.changes.compare import SUMMARISED, session_reach
from ivhl.tracker.store.course import HASH, short
from ivhl.tracker.store.entries import Entry, code_of
from ivhl.tracker.store.metrics import SECONDS, Metric
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.store.spread import VERDICT_CONFIDENCE, Spreads
from ivhl.tracker.views.source import Place, Source, cells_of, slug

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ivhl.records.identity import CaseInCell

    # By place and cell; what was measured at a commit, and last.
    Sides = Mapping[tuple[Place, str], Mapping[str, Sequence[Entry]]]

NEWEST: Final = "newest"
# Newest commits of a place that can be chosen: an older one is compared on the command line.
MOST_COMMITS: Final = 1000
# Records of one case in the side of the newest: of different sources, the newest first. So that two
# cells are compared at the same code, as ``ivhl compare`` does.
_MOST_SUBJECTS = 3
_MEASURED: Final[tuple[Metric, ...]] = ("speedup", "eager", "compiled", "cold", "memory")
JUDGED: Final[tuple[Metric, ...]] = ("speedup", "eager", "compiled")


def choices(source: Source, sides: Sides) -> dict[str, Any]:
    """Return what can be chosen: places, their cells, and the commits of each.

    ``sessions`` has what another session may move a mean by, as a logarithm (``session_reach``).
    """
    places = []
    for place in source.page.places:
        found = {which for (at, _), group in sides.items() if at == place for which in group}
        commits = _in_order(source, found - {NEWEST})
        cells = [
            [python, torch, slug(cell), _ranges(i for i, c in enumerate(commits) if c in group)]
            for python, torch, cell in cells_of(source.by_place.get(place, ()))
            if (group := sides.get((place, cell)))
        ]
        if cells:
            places.append(
                {"name": place.name, "slug": place.slug, "commits": commits, "cells": cells}
            )
    sessions = {metric: session_reach(metric) for metric in SUMMARISED}
    return {"places": places, "sessions": sessions}


def _in_order(source: Source, commits: Collection[str]) -> list[str]:
    """Return shortened commits, oldest first; those of other branches are the last."""
    known = [commit[:HASH] for commit in source.state.commit_order]
    return [*(c for c in known if c in commits), *sorted({*commits} - {*known})]


def _ranges(numbers: Iterable[int]) -> list[int]:
    """Return first and last of each row of successive numbers: short where few are missing."""
    found: list[int] = []
    for number in numbers:
        if found and number == found[-1] + 1:
            found[-1] = number
        else:
            found += [number, number]
    return found


def side_files(sides: Sides) -> Iterator[tuple[str, Sequence[Entry]]]:
    """Yield the address of each side and its runs."""
    for (place, cell), group in sides.items():
        for which, entries in group.items():
            yield f"data/side/{place.slug}/{slug(cell)}/{slug(which)}.js", entries


def side(source: Source, entries: Iterable[Entry]) -> dict[str, Any]:
    """Return the content of a side."""
    spreads = source.state.spreads
    cases = grouped_by(entries, lambda entry: entry.case.name)
    rows = {name: [_case(entry, spreads) for entry in group] for name, group in cases.items()}
    return {"fields": FIELDS, "cases": rows}


FIELDS: Final = (
    "commit", "status", "speedup", "eager", "compiled", "cold", "memory", "breaks", "recompiles",
    "reach", "reach_eager", "reach_compiled", "speed", "yardstick", "equal_eager", "equal_compiled",
    "sources", "same", "lock", "build",
)  # fmt: skip


def _case(entry: Entry, spreads: Spreads) -> list[Any]:
    made, shown = entry.made, entry.shown
    values = [entry.values.get(metric) for metric in _MEASURED]
    reaches = [_reach(entry, metric, spreads) for metric in JUDGED]
    speed = entry.calibration
    of_equal_speed = [
        None if speed is None else _reach(entry, metric, spreads, calibrated=True)
        for metric in JUDGED
        if metric in SECONDS
    ]
    how = "in a container" if made.image else "native"
    same = (
        f"instrument {made.instrument}, {made.threads} threads, {made.clock}, {entry.dtype}, {how}"
    )
    return [
        entry.commit[:HASH],
        f"failed: {entry.failure_class}" if entry.failure_class else "measured",
        *(None if found is None else short(found.value) for found in values),
        shown.breaks,
        shown.recompiles,
        *reaches,
        None if speed is None else short(speed.value),
        None if speed is None else speed.yardstick,
        *of_equal_speed,
        (entry.sources or entry.commit)[:12] + (entry.benchmark or "")[:12],
        ", ".join((same, *made.flags)),
        (made.lock or "existing")[:12],
        made.python_build,
    ]


def _reach(
    entry: Entry, metric: Metric, spreads: Spreads, *, calibrated: bool = False
) -> float | None:
    """Return half the distance, as a logarithm, that two runs like this one seldom exceed."""
    if metric not in entry.values:
        return None
    spread = spreads.of(entry, metric, calibrated=calibrated)
    reach = spread.scores.of(VERDICT_CONFIDENCE) * spread.scale(entry, metric=metric)
    return short(reach / 2**0.5)


def sides_of(source: Source) -> Sides:
    """Return the runs of each place and cell: by commit, and the newest of each case."""
    by_cell = grouped_by(
        (e for e in sorted(source.entries, key=recorded_rank) if not e.case.existing),
        lambda e: (e.case.machine, e.case.device, e.case.cell),
    )
    commits: dict[Place, set[str]] = defaultdict(set)
    for (machine, device, _), entries in by_cell.items():
        commits[Place(machine, device)] |= {entry.commit[:HASH] for entry in entries}
    shown = {place: {*_in_order(source, all_)[-MOST_COMMITS:]} for place, all_ in commits.items()}
    sides: dict[tuple[Place, str], Mapping[str, Sequence[Entry]]] = {}
    for (machine, device, cell), entries in by_cell.items():
        place = Place(machine, device)
        by_commit: dict[str, list[Entry]] = defaultdict(list)
        newest: dict[CaseInCell, dict[object, Entry]] = defaultdict(dict)
        for entry in entries:
            if entry.commit[:HASH] in shown[place]:
                by_commit[entry.commit[:HASH]].append(entry)
        for entry in reversed(entries):
            subjects = newest[entry.case]
            if len(subjects) < _MOST_SUBJECTS:
                subjects.setdefault(code_of(entry), entry)
        last = [entry for subjects in newest.values() for entry in subjects.values()]
        sides[place, cell] = {NEWEST: last, **by_commit}
    return sides
