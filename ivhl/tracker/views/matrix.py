"""The matrix: cases by cells, one table for each machine and device."""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from ivhl.tracker import wording
from ivhl.tracker.changes.comparable import differences
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import Row, is_prerelease, python_key, release_key
from ivhl.tracker.support.spans import spans_of, spans_sentence
from ivhl.tracker.views.project import retired_cases
from ivhl.tracker.views.source import (
    Place,
    Source,
    View,
    case_page,
    cell_data,
    cells_of,
    matrix_page,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ivhl.records.identity import CaseInCell

# A speedup moved visibly between two releases if it did by this factor and the intervals for
# another run have nothing in common.
_MOVED = 1.1
# The table is divided where it would have more cells.
MOST_CELLS = 5000
# Shades of green: a speedup of 1 has the lightest, of this and more the darkest.
_DARKEST = 8.0
_SHADES = 4


def matrix_views(source: Source, place: Place) -> tuple[View, ...]:
    """Return the matrix of a place, the newest releases first if it is divided."""
    rows = source.by_place.get(place, ())
    columns = newest_first(cells_of(rows))
    n_cases = len({row.series for row in rows}) or 1
    releases = sorted({torch for _, torch, _ in columns}, key=release_key, reverse=True)
    pythons = len({python for python, _, _ in columns}) or 1
    each = max(1, MOST_CELLS // (n_cases * pythons))
    chunks = [releases[i : i + each] for i in range(0, len(releases), each)] or [[]]
    first = matrix_page(place, source.page.main)
    stem = first.removesuffix(".html")
    parts = tuple(
        (f"{stem}-{n}.html" if n > 1 else first, f"{chunk[-1]} to {chunk[0]}" if chunk else "")
        for n, chunk in enumerate(chunks, 1)
    )
    return tuple(
        _view(source, place, [c for c in columns if c[1] in chunk], parts, number)
        for number, chunk in enumerate(map(set, chunks), 1)
    )


def newest_first(columns: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return Python, release and id of cells with the newest release of each Python first."""
    newest = sorted(columns, key=lambda one: release_key(one[1]), reverse=True)
    return sorted(newest, key=lambda one: python_key(one[0]))


def _view(
    source: Source,
    place: Place,
    columns: Sequence[tuple[str, str, str]],
    parts: tuple[tuple[str, str], ...],
    number: int,
) -> View:
    rows = source.by_place.get(place, ())
    ids = {cell for *_, cell in columns}
    known = source.releases(rows)
    by_series = grouped_by(rows, lambda row: row.series)
    ordered = sorted(by_series, key=source.case_order)
    groups = []
    for name, cases in groupby(ordered, key=lambda series: series.workload):
        workload = source.workloads.get(name)
        groups.append(
            View(
                subject=source.subject(name),
                workload=name,
                title=workload.title if workload else "",
                lines=[_line(by_series[series], series, columns, known) for series in cases],
            )
        )
    counts = Counter(row.status for row in rows if row.cell in ids)
    return View(
        place=place,
        href=parts[number - 1][0],
        others=source.other_places(place, matrix_page),
        heads=tuple(
            (python, len(list(group))) for python, group in groupby(columns, key=lambda c: c[0])
        ),
        columns=tuple(columns),
        groups=tuple(groups),
        tallies=tuple(
            (s, wording.STATUS_WORDS[s], wording.STATUS_MEANINGS[s], counts[s])
            for s in wording.STATUSES
        ),
        pythons=tuple(sorted({c[0] for c in columns}, key=python_key)),
        releases=tuple(sorted({c[1] for c in columns}, key=release_key)),
        variants=tuple(sorted({series.variant for series in ordered})),
        notes=_notes(rows),
        retired=retired_cases(source.state),
        part=number,
        parts=parts,
    )


def _notes(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Return the notes that the cells have, with their meanings.

    Facts:
        heads: Python and the number of its columns.
        columns: Python, release and id of each column; of each Python, the newest release first.
        part: Number of this part of the table, from 1.
        parts: Address and text of each part; one if the table is not divided.
    """
    meanings = {
        mark: wording.REFERENCE_MEANINGS[kind]
        for kind, mark in wording.REFERENCE_MARKS.items()
        if mark
    }
    meanings |= {
        wording.UNCOMMITTED_MARK: wording.UNCOMMITTED_MEANING,
        wording.EXPECTED_MARK: wording.EXPECTED_MEANING,
        wording.FIXED_MARK: wording.FIXED_MEANING,
        "quick": wording.QUICK_MEANING,
        "existing": "measured in an existing environment, which no lock describes",
    }
    used = {note for row in rows for note in notes_of(row)}
    return (
        *((word, meaning) for word, meaning in meanings.items() if word in used),
        *(
            (word, meaning)
            for word, meaning in wording.COMPILING_MEANINGS.items()
            if any(note.removesuffix("s").endswith(word) for note in used)
        ),
    )


def _line(
    rows: Sequence[Row],
    series: CaseInCell,
    columns: Sequence[tuple[str, str, str]],
    known: Sequence[str],
) -> View:
    at = {row.cell: row for row in rows}
    before = before_of(rows)
    pythons = sorted({row.python for row in rows}, key=python_key)
    return View(
        name=f"{series.workload} {series.size} {series.variant}",
        size=series.size,
        variant=series.variant,
        href=case_page(series),
        support=tuple(
            (python, spans_sentence(spans_of([r for r in rows if r.python == python], known)))
            for python in pythons
        ),
        cells=tuple(cell_view(at.get(cell), before.get(cell)) for *_, cell in columns),
    )


def before_of(rows: Sequence[Row]) -> Mapping[str, Row]:
    """Return, for each cell of a case, the row of the next older release that was run there."""
    found: dict[str, Row] = {}
    ordered = sorted(rows, key=lambda row: (python_key(row.python), release_key(row.torch)))
    for _, group in groupby(ordered, key=lambda row: row.python):
        older: Row | None = None
        for row in (row for row in group if row.status != "not_run"):
            if older is not None:
                found[row.cell] = older
            older = older if is_prerelease(row.torch) else row
    return found


def cell_view(row: Row | None, before: Row | None) -> View:
    """Return a case in a cell; ``before`` is the row of the release that was run before it.

    Facts:
        text: What the cell shows: a speedup, or the status.
        move: ``down`` or ``up`` if the speedup differs visibly from that on the release run before.
        was: Speedup on that release, if it moved.
        shade: 0 to 3, the size of the speedup.
        data: Address of the details; empty if the case was not run.
        notes: What its verdict rests on, if not on an independent reference, a commit, a lock and
            a full run; graph breaks, eager frames and recompiles; and what the known failures of
            the project say of it.
    """
    if row is None or row.status == "not_run":
        empty = dict.fromkeys(("text", "move", "was", "data"), "")
        return View(
            status="not_run", word=wording.STATUS_WORDS["not_run"], shade=0, notes=(), **empty
        )
    word = wording.STATUS_WORDS[row.status]
    move = moved(before, row)
    was = wording.times(before.speedup) if move and before and before.speedup is not None else ""
    return View(
        status=row.status,
        word=word,
        text=wording.times(row.speedup)
        if row.speedup
        else wording.NOT_TIMED
        if row.passes
        else word,
        move=move,
        was=was,
        shade=shade_of(row.speedup),
        data=cell_data(row.series, row.cell) if row.recorded is not None else "",
        notes=notes_of(row),
    )


def notes_of(row: Row) -> tuple[str, ...]:
    """Return what a row's verdict rests on, if not on what all should, and what was not compiled."""
    kinds = (
        (wording.EXPECTED_MARK, row.expectation is not None and row.is_failure),
        (wording.FIXED_MARK, row.is_fixed),
        ("quick", row.quick),
        ("existing", row.existing),
    )
    return (*row.marks, *(word for word, holds in kinds if holds))


def moved(before: Row | None, row: Row) -> str:
    """Return ``down`` or ``up`` if the speedup differs visibly between two comparable rows."""
    if before is None or before.recorded is None or row.recorded is None:
        return ""
    if before.speedup is None or row.speedup is None or not 0 < before.speedup < math.inf:
        return ""
    ratio = row.speedup / before.speedup
    apart = (row.speedup_high or 0) < (before.speedup_low or 0) or (row.speedup_low or 0) > (
        before.speedup_high or math.inf
    )
    if not apart or 1 / _MOVED < ratio < _MOVED:
        return ""
    if differences(before.recorded.entry, row.recorded.entry, "torch"):
        return ""
    return "down" if ratio < 1 else "up"


def shade_of(speedup: float | None) -> int:
    """Return the shade of a speedup, 0 to 3, on a logarithmic scale."""
    if speedup is None or speedup <= 1:
        return 0
    return min(_SHADES - 1, int(_SHADES * math.log(speedup) / math.log(_DARKEST)))
