"""The sides of a comparison: what one machine measured in one cell, at a commit or last.

The page *Compare* loads two of them and compares them in the browser. It shows by what runs of the
same code differ; verdicts over many cases are those of ``ivhl compare``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from ivhl.instrument import version_of
from ivhl.records.store import device_type, is_existing, recorded_rank
from ivhl.tracker.compat import status_of
from ivhl.tracker.metrics import measured
from ivhl.tracker.spread import VERDICT_CONFIDENCE
from ivhl.tracker.views.source import Place, Source, cells_of, slug
from ivhl.tracker.wording import STATUS_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.spread import Spreads

NEWEST: Final = "newest"
# Records of one case in the side of the newest: of different sources, the newest first. So that two
# cells are compared at the same code, as ``ivhl compare`` does.
_MOST_SUBJECTS = 3
_DIGITS = 5
_HASH = 8


def side_data(place: Place, cell: str, which: str) -> str:
    """Return the address of a side, from the root of the site."""
    return f"data/side/{place.slug}/{slug(cell)}/{slug(which)}.js"


def choices(source: Source) -> dict[str, Any]:
    """Return what can be chosen: places, their cells, and the commits of each."""
    sides = _sides(source)
    places = []
    for place in source.page.places:
        commits = [c[:_HASH] for c in source.state.commit_order]
        found = {which for (at, _), group in sides.items() if at == place for which in group}
        commits = [*(c for c in commits if c in found), *sorted(found - {*commits, NEWEST})]
        cells = [
            [python, torch, slug(cell), [i for i, c in enumerate(commits) if c in group]]
            for python, torch, cell in cells_of(source.by_place.get(place, ()))
            if (group := sides.get((place, cell)))
        ]
        if cells:
            places.append(
                {"name": place.name, "slug": place.slug, "commits": commits, "cells": cells}
            )
    return {"places": places}


def side_files(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the address and the content of each side."""
    spreads = source.state.spreads
    for (place, cell), group in _sides(source).items():
        for which, records in group.items():
            cases: dict[str, list[list[Any]]] = defaultdict(list)
            for record in records:
                name = f"{record.workload}/{record.size}/{record.variant}"
                cases[name].append(_entry(record, spreads))
            yield side_data(place, cell, which), {"fields": FIELDS, "cases": cases}


FIELDS: Final = (
    "commit", "status", "speedup", "eager", "compiled", "cold", "memory", "breaks", "recompiles",
    "reach", "reach_eager", "reach_compiled", "sources", "same", "lock",
)  # fmt: skip


def _entry(record: RunRecord, spreads: Spreads) -> list[Any]:
    conditions = record.conditions
    values = {m: measured(record, m) for m in ("speedup", "eager", "compiled", "cold", "memory")}
    reaches = []
    for metric in ("speedup", "eager", "compiled"):
        found = values[metric]
        # The half of the distance, in logarithms, that two runs like this one seldom exceed.
        spread = spreads.of(record, metric)
        reach = spread.scores.of(VERDICT_CONFIDENCE) * spread.scale(record, metric=metric)
        reaches.append(_short(reach / 2**0.5) if found else None)
    facts = record.compile
    counts = (
        (None, None)
        if facts is None or facts.graphs is None
        else tuple(sum(o.count for o in group) for group in (facts.graph_breaks, facts.recompiles))
    )
    failure = record.failure
    status = status_of(record, spreads)
    return [
        record.commit[:_HASH],
        STATUS_WORDS[status] + (f": {failure.failure_class}" if failure else ""),
        *(_short(found.value) if (found := values[m]) else None for m in values),
        *counts,
        *reaches,
        (record.sources or record.commit)[:12] + (record.benchmark or "")[:12],
        " ".join(
            (
                f"instrument {version_of(conditions.instrument)},",
                f"{conditions.threads} threads,",
                f"clock {conditions.clock},",
                f"{record.dtype},",
                "in a container" if conditions.image else "native",
            )
        ),
        (record.cell.lock_sha256 or "existing")[:12],
    ]


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _sides(source: Source) -> dict[tuple[Place, str], dict[str, Sequence[RunRecord]]]:
    """Return the records of each place and cell: by commit, and the newest of each case."""
    by_commit: dict[tuple[Place, str], dict[str, list[RunRecord]]] = {}
    for record in sorted(source.shown, key=recorded_rank):
        if is_existing(record):
            continue
        place = Place(record.machine.name, device_type(record))
        group = by_commit.setdefault((place, record.cell.id), {})
        group.setdefault(record.commit[:_HASH], []).append(record)
    sides: dict[tuple[Place, str], dict[str, Sequence[RunRecord]]] = {}
    for key, group in by_commit.items():
        newest: dict[tuple[str, str, str], dict[object, RunRecord]] = defaultdict(dict)
        every = sorted((r for records in group.values() for r in records), key=recorded_rank)
        for record in reversed(every):
            case = newest[record.workload, record.size, record.variant]
            subject = (record.sources or record.commit, record.benchmark)
            if subject not in case and len(case) < _MOST_SUBJECTS:
                case[subject] = record
        last = [record for case in newest.values() for record in case.values()]
        sides[key] = {NEWEST: last, **group}
    return sides
