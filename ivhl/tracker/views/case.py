"""The page of a case: all cells, the course over releases and commits, details of a cell."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from ivhl.records.identity import case_of
from ivhl.tracker import wording
from ivhl.tracker.changes.comparable import Axis, builds_beside, differences
from ivhl.tracker.changes.disturbed import left_out
from ivhl.tracker.changes.steps import QUANTITIES, cases_of, ends_of, find_steps, of_one_code
from ivhl.tracker.store.course import CURVES, FIELDS, HASH, curve_values, short, short_all
from ivhl.tracker.store.facts import warnings_of
from ivhl.tracker.support.compat import Row, format_speedup, python_key, release_key
from ivhl.tracker.support.known import KnownCause, causes_of
from ivhl.tracker.support.spans import spans_of, spans_sentence
from ivhl.tracker.views.facts import error_lines, fact_groups, signed_by
from ivhl.tracker.views.incidents import incident_views
from ivhl.tracker.views.matrix import before_of, cell_view, notes_of
from ivhl.tracker.views.source import (
    Place,
    Source,
    View,
    beside,
    case_page,
    cell_data,
    environment_page,
    matrix_page,
    run_page,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ivhl.records.identity import CaseInCell
    from ivhl.records.record import Arm, Counted, RunRecord
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.support.expectations import Expectation
    from ivhl.tracker.views.source import Links

K = TypeVar("K")
# More text of one record is in its line of the results only.
MOST_TEXT = 20_000
# The details have the newest points of a course: so many, if there are, and less than twice as many.
# The older ones are in files of so many each, which one commit more leaves as they are.
POINTS_OF_A_FILE = 150
# Newest incidents that the page lists, and cells of all of them: the newest have more.
_MOST_INCIDENTS, _MOST_CHANGES = 20, 60
_MOST_REASONS = 40


# Facts of ``case_view`` that their names do not tell:
# neighbours: Address and text of other sizes and variants, and of the case elsewhere.
# cells: Address of the details, id and text of each cell that was run, newest release first.
# releases: The newest first.
# curves: The course over releases for each Python, as ``charts.js`` draws it.
# steps: Where eager or compiled code moved along releases and Pythons.
# disturbed: Which of the runs are in no step in time, as a sentence; empty if none.
# left_out: Number of older incidents.
# notes: What people said about changes of the case.
# upstream: Known causes of its failures, each with the cells that fail so.
# expected: Known failures of the project that speak of it, each with what they mean here,
#     and the cells.
# command: Repeats the newest record, that of the cell ``newest``.
def case_view(source: Source, series: CaseInCell) -> View:
    """Return the page of a case."""
    rows = source.by_series[series]
    place = Place(series.machine, series.device)
    page = source.page
    declared = source.workloads.get(series.workload)
    run = [row for row in rows if row.recorded is not None]
    newest = max(run, key=lambda row: row.recorded_at or "", default=None)
    incidents = source.incidents_of[series]
    # The newest first: a narrow window shows the beginning of a line.
    releases = tuple(sorted({row.torch for row in rows}, key=release_key, reverse=True))
    curves, breaks = _over_releases(source, rows)
    return View(
        place=place,
        href=case_page(series),
        workload=series.workload,
        size=series.size,
        variant=series.variant,
        title=declared.title if declared else "",
        source=declared.source if declared else "",
        engine=wording.ENGINE_WORDS.get(newest.engine, newest.engine) if newest else "",
        matrix=matrix_page(place, page.main),
        releases=releases,
        lines=tuple(_lines(source, rows, releases)),
        neighbours=_neighbours(source, series),
        cells=tuple(
            (cell_data(series, row.cell), row.cell, f"Python {row.python}, PyTorch {row.torch}")
            # The one that is most often wanted first.
            for row in sorted(run, key=_age, reverse=True)
        ),
        curves=curves,
        breaks=breaks,
        steps=tuple(_steps(source, rows)),
        disturbed=left_out(chain.from_iterable(map(source.course, rows)), source.disturbed),
        incidents=incident_views(source, incidents[:_MOST_INCIDENTS], _MOST_CHANGES),
        left_out=max(0, len(incidents) - _MOST_INCIDENTS),
        notes=tuple(source.notes_of(series)),
        upstream=tuple(_upstream(run)),
        expected=tuple(_expected(run)),
        command=(newest.command or "") if newest else "",
        newest=f"Python {newest.python}, PyTorch {newest.torch}" if newest else "",
    )


def _age(row: Row) -> tuple[object, ...]:
    return release_key(row.torch), python_key(row.python), row.cell


def _upstream(rows: Iterable[Row]) -> Iterator[tuple[KnownCause, str]]:
    """Yield the known causes of failures of the rows, with Python and releases of each."""
    failed = (row for row in sorted(rows, key=_gates_last) if row.failure_class)
    return _where((cause, row) for row in failed if row.record for cause in _causes(row.record))


def _causes(record: RunRecord) -> tuple[KnownCause, ...]:
    failure = record.failure
    if failure is None:
        return ()
    return causes_of(case_of(record), failure.failure_class, failure.message)


def _expected(rows: Iterable[Row]) -> Iterator[tuple[Expectation, str, str]]:
    """Yield what the known failures of the project say of the rows, as ``_upstream``."""
    marked = (
        ((row.expectation, wording.FIXED_MARK if row.is_fixed else wording.EXPECTED_MARK), row)
        for row in sorted(rows, key=_gates_last)
        if row.expectation is not None
    )
    for (entry, mark), where in _where(marked):
        yield entry, mark, where


def _where(found: Iterable[tuple[K, Row]]) -> Iterator[tuple[K, str]]:
    """Yield each key once, with Python and releases of its rows as text."""
    cells: dict[K, dict[str, list[str]]] = {}
    for key, row in found:
        cells.setdefault(key, {}).setdefault(row.python, []).append(row.torch)
    for key, pythons in cells.items():
        yield key, "; ".join(f"{python}: PyTorch {', '.join(t)}" for python, t in pythons.items())


def _gates_last(row: Row) -> tuple[object, ...]:
    """Return a key by Python and release; what PyTorch refuses concerns no case in particular."""
    is_gate = row.failure_class == "support_gate"
    return is_gate, python_key(row.python), release_key(row.torch)


def _steps(source: Source, rows: Iterable[Row]) -> Iterator[View]:
    """Yield what ``ivhl course`` says of a case: where a side moved, and whose doing it is.

    Facts:
        title: Between what, and on which cells.
        sides: What each quantity did.
        whose: Whose doing it is, and what is to know of the builds of two Pythons.
    """
    entries = chain.from_iterable(source.course(row) for row in rows if not row.existing)
    for subject in cases_of(entries).values():
        runs = of_one_code(subject)
        for step in find_steps(runs, source.state.spreads, disturbed=source.disturbed):
            builds = builds_beside([ends_of(step, runs)] if step.along == "python" else ())
            yield View(
                title=step.title("→"),
                sides=[str(step.sides[side]) for side in QUANTITIES if side in step.sides],
                whose="; ".join((step.whose, *builds)),
            )


def _lines(source: Source, rows: Sequence[Row], releases: Sequence[str]) -> Iterator[View]:
    before = before_of(rows)
    for python in sorted({row.python for row in rows}, key=python_key):
        here = {row.torch: row for row in rows if row.python == python}
        yield View(
            python=python,
            cells=[
                cell_view(here[torch], before.get(here[torch].cell)) if torch in here else None
                for torch in releases
            ],
            support=spans_sentence(spans_of(here.values(), source.releases(rows))),
        )


def _neighbours(source: Source, series: CaseInCell) -> tuple[tuple[str, Links], ...]:
    """Return links to the case's other sizes and variants, and to other machines that ran it."""
    main = source.page.main
    place = Place(series.machine, series.device)
    in_this_place = source.run.get((series.machine, series.device, series.workload), ())
    sizes, more_sizes = beside(in_this_place, series)
    places, more_places = beside(source.run.get((series.name,), ()), series)
    here = [(case_page(other), f"{other.size} {other.variant}") for other in sizes]
    there = [(case_page(other), Place(other.machine, other.device).name) for other in places]
    if more_sizes:
        here.append((matrix_page(place, main), f"{more_sizes} more"))
    if more_places:
        there.append((source.front_page(main, main), f"{more_places} more"))
    titles = ("Other sizes and variants", "On other machines")
    return tuple(
        (title, tuple(links)) for title, links in zip(titles, (here, there), strict=True) if links
    )


def _over_releases(source: Source, rows: Sequence[Row]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the curves over releases, one line for each Python, and where they are broken."""
    releases = source.releases(row for row in rows)
    pythons = sorted({row.python for row in rows}, key=python_key)
    lines, breaks = [], []
    for python in pythons:
        at = {row.torch: row for row in rows if row.python == python}
        if not any(row.speedup is not None for row in at.values()):
            continue
        along = [at.get(torch) for torch in releases]
        entries = [row.recorded.entry if row and row.recorded else None for row in along]
        marks = _marks(entries, "torch")
        breaks += [
            f"Python {python}, before {releases[i]}: {'; '.join(text)}"
            for i, text in marks.items()
        ]
        lines.append(
            {"name": f"Python {python}", "marks": sorted(marks), **_curves(entries, along)}
        )
    return {"x": list(releases), "lines": lines}, tuple(breaks)


def _marks(
    entries: Sequence[Entry | None], axis: Axis, last: Entry | None = None
) -> dict[int, list[str]]:
    """Return why a point cannot be compared with the one before, by its index.

    Args:
        entries: The points; ``None`` where nothing was measured.
        axis: Along what they lie.
        last: The point before the first of them.
    """
    found: dict[int, list[str]] = {}
    for i, entry in enumerate(entries):
        if entry is None:
            continue
        apart = differences(last, entry, axis) if last is not None else []
        if apart:
            found[i] = apart
        last = entry
    return found


def _curves(
    entries: Sequence[Entry | None], rows: Sequence[Row | None]
) -> dict[str, list[float | None]]:
    """Return a list for each curve, with ``None`` where nothing was measured."""
    points: list[dict[str, float | None]] = []
    for entry, row in zip(entries, rows, strict=True):
        points.append({} if entry is None else curve_values(entry))
        if row is not None:
            points[-1] |= {"low": row.speedup_low, "high": row.speedup_high}
    seen = {name for point in points for name, value in point.items() if value is not None}
    return {name: [short(point.get(name)) for point in points] for name in CURVES if name in seen}


def cell_details(source: Source, row: Row) -> dict[str, Any]:
    """Return everything about a case in one cell, which the page loads when it is opened.

    The points of its course are those of the last of ``parts_of``.
    """
    record = row.record
    if record is None:
        raise ValueError(row)
    meaning = (
        wording.CLASS_MEANINGS[row.failure_class]
        if row.failure_class
        else wording.STATUS_MEANINGS[row.status]
    )
    place = Place(row.machine, row.device)
    compiled = record.compile
    another = source.state.spreads.another_run(record)
    return {
        "title": f"{row.workload} / {row.size} / {row.variant}",
        "place": f"Python {row.python} · PyTorch {row.torch} · {place.name}",
        "status": row.status,
        "word": " · ".join((wording.STATUS_WORDS[row.status], *notes_of(row))),
        "text": "" if another is None else format_speedup(another),
        "meaning": meaning,
        "message": cut(row.message),
        "failure": _failure(record),
        "expected": _known(row),
        "upstream": [[cause.url or "", cause.plain] for cause in _causes(record)],
        "command": cut(row.command or ""),
        "groups": [
            {"title": title, "facts": facts}
            for title, facts in (
                fact_groups(record, source.state.spreads) | signed_by(record, source.provenance)
            ).items()
        ],
        "errors": error_lines(record),
        "counted": {
            "Graph breaks": _counted(compiled.graph_breaks if compiled else ()),
            "Recompiles": _counted(compiled.recompiles if compiled else ()),
            "Warnings": _counted(warnings_of(record)),
        },
        "links": [
            [case_page(row.series), "The case"],
            [environment_page(row.cell), f"Environment {row.cell}"],
            [run_page(place, record.same_as or record.commit), "Run"],
        ],
        "lock": record.cell.lock_sha256 or "",
        "samples": _samples(record),
        "history": course_part(source, row, 0),
    }


def cut(text: str) -> str:
    """Return a text, or its beginning and end with the number of characters left out."""
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _known(row: Row) -> dict[str, str | None] | None:
    entry = row.expectation
    if entry is None:
        return None
    title = (
        f"{wording.FIXED_MARK}: {wording.FIXED_MEANING}" if row.is_fixed else wording.EXPECTED_MARK
    )
    return {"title": title.capitalize(), "reason": cut(entry.reason), "link": entry.link}


def _failure(record: RunRecord) -> dict[str, str] | None:
    failure = record.failure
    if failure is None:
        return None
    return {
        "class": failure.failure_class,
        "phase": failure.phase,
        "exception": cut(failure.exception),
        "where": cut(failure.where),
        "output": cut(failure.output_tail),
    }


def _counted(found: Iterable[Counted]) -> list[tuple[int, str]]:
    return [(one.count, cut(wording.without_other_advice(one.text))) for one in found][
        :_MOST_REASONS
    ]


def _samples(record: RunRecord) -> dict[str, list[float]]:
    """Return seconds per call of each round: eager, eager again (A/A) and compiled (A/B)."""
    arms: tuple[tuple[str, Arm | None], ...] = (
        ("eager", record.eager),
        ("again", record.eager_again),
        ("compiled", record.compiled),
    )
    return {name: short_all(arm.samples_s) for name, arm in arms if arm is not None}


def parts_of(course: Sequence[Entry]) -> tuple[Sequence[Entry], ...]:
    """Return a course over commits in parts, oldest first: the last one is in the details."""
    each = POINTS_OF_A_FILE
    older = max(0, len(course) // each - 1)
    return (*(course[i * each : (i + 1) * each] for i in range(older)), course[older * each :])


def course_part(source: Source, row: Row, number: int) -> dict[str, Any]:
    """Return what belongs to a part of the course over commits, beside its points.

    Args:
        source: The records.
        row: The case in the cell.
        number: Which of ``parts_of``, from 1; 0 for the last one.
    """
    parts = parts_of(source.course(row))
    at = (number or len(parts)) - 1
    part = parts[at]
    marks = _marks(part, "commit", parts[at - 1][-1] if at else None)
    return {
        "fields": FIELDS,
        "marks": sorted(marks),
        "breaks": [f"before {part[i].commit[:HASH]}: {'; '.join(t)}" for i, t in marks.items()],
        "older": cell_data(row.series, row.cell, at) if at else "",
    }
