"""The front page: what works where, what it is worth, and what changed last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.tracker.causes.advice import Advice, advise, worth_of
from ivhl.tracker.changes.regressions import incidents_of
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support import spans
from ivhl.tracker.support.compat import Row, newest_release, python_key, release_key
from ivhl.tracker.views.incidents import incident_view
from ivhl.tracker.views.source import Place, Source, View, matrix_page
from ivhl.tracker.wording import STATUS_WORDS, STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.tracker.support.spans import Span

_NEWEST_FINDINGS = 5
# A page for a thousand releases would be larger than anybody reads; the matrix has all.
MOST_RELEASES = 24


# Facts of ``front_view`` that their names do not tell:
# advice: The cell to take; ``None`` if no case has a result.
# why: What speaks for it.
# supported: Python to the releases whose ``torch.compile`` works, in intervals.
# supported_over: Number of cases that this is over.
# worth: What compiling is worth, per Python on the newest release.
# matched: Number of cases that every mean is over (``matched_cases``).
# releases: The newest first.
# older: Number of older releases that the grid leaves out.
def front_view(source: Source, place: Place) -> View:
    """Return the front page of a place."""
    rows = source.by_place.get(place, ())
    page = source.page
    matched = spans.matched_cases(rows)
    releases = tuple(
        sorted({row.torch for row in rows if row.status != "not_run"}, key=release_key)
    )
    # The newest first: a narrow window shows the beginning of a line.
    shown = releases[-MOST_RELEASES:][::-1]
    pythons = sorted({row.python for row in rows}, key=python_key)
    cells = by_cell(rows)
    matrix = matrix_page(place, page.main)
    newest = newest_release(row.torch for row in rows if row.speedup is not None)
    advice = advise(rows, source.state.spreads, source.disturbed_keys)
    incidents = incidents_of(
        change for change in source.changes if (change.case.machine, change.case.device) == place
    )
    worse = [one for one in incidents if one.worse]

    def line(python: str) -> View:
        there = ((f"{matrix}#python={python}&torch={t}", cells[python, t]) for t in shown)
        return View(
            python=python, cells=[spans.grid_cell(here, href, matched) for href, here in there]
        )

    return View(
        place=place,
        href=source.front_page(place, page.main),
        matrix=matrix,
        others=source.other_places(place, source.front_page),
        advice=advice,
        why=_why(advice, rows) if advice else "",
        supported=tuple((p, spans.spans_sentence(s)) for p, s in supported(source, rows).items()),
        supported_over=supported_over(rows),
        newest=newest,
        worth=tuple(
            (python, worth_of(cells[python, newest], matched))
            for python in pythons
            if any(row.speedup is not None for row in cells[python, newest])
        ),
        matched=len(matched),
        last=incident_view(source, worse[0]) if worse else None,
        findings=tuple(incident_view(source, one) for one in incidents[:_NEWEST_FINDINGS]),
        n_incidents=len(source.incidents),
        releases=shown,
        older=len(releases) - len(shown),
        lines=tuple(map(line, pythons)),
        tallies=tuple((status, STATUS_WORDS[status]) for status in STATUSES),
    )


def _why(advice: Advice, rows: Iterable[Row]) -> str:
    """Return what speaks for the cell to take: no more than was measured beside it."""
    if advice.cost:
        return f"{advice.cost}, but on no other Python do more cases pass"
    beside = [
        row
        for row in rows
        if row.torch == advice.torch and row.python != advice.python
        if row.recorded is not None and not row.existing
    ]
    if any(row.speedup is not None for row in beside):
        return "no case was shown to fail, break more graphs or be slower than on another Python"
    return "on no other Python does a case pass" if beside else "no other Python was run with it"


def supported(source: Source, rows: Sequence[Row]) -> dict[str, tuple[Span, ...]]:
    """Return, for each Python that was tried, where its ``torch.compile`` works, in intervals."""
    cells = _compiled_cells(rows)
    words = spans.words_of_cells(cells)
    known = source.releases(rows)
    tried = {python for (python, _), group in cells.items() if spans.cases_run(group)}
    return {
        python: spans.spans({t: w for (p, t), w in words.items() if p == python}, known)
        for python in sorted(tried, key=python_key)
    }


def supported_over(rows: Iterable[Row]) -> int:
    """Return over how many cases ``supported`` is, where it does not say of fewer."""
    return max(map(spans.cases_run, _compiled_cells(rows).values()), default=0)


def _compiled_cells(rows: Iterable[Row]) -> Mapping[tuple[str, str], Sequence[Row]]:
    return by_cell(r for r in rows if r.status != "not_run" and r.engine in ("", "compile"))


def by_cell(rows: Iterable[Row]) -> Mapping[tuple[str, str], Sequence[Row]]:
    """Return the rows of each Python and release; none for others."""
    return grouped_by(rows, lambda row: (row.python, row.torch))
