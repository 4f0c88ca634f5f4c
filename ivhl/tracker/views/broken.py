"""Leave out the records of which no page can be made, so that all others are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ivhl.records.identity import case_of
from ivhl.tracker.store.entries import recorded
from ivhl.tracker.views.case import case_view, cell_details
from ivhl.tracker.views.environment import environment_views
from ivhl.tracker.views.front import front_view
from ivhl.tracker.views.incidents import regressions_view
from ivhl.tracker.views.matrix import matrix_views
from ivhl.tracker.views.run import run_lines, run_view
from ivhl.tracker.views.sides import choices, side, side_files, sides_of
from ivhl.tracker.views.source import Source

if TYPE_CHECKING:
    from ivhl.tracker.views.project import State

_LONGEST = 500


def without_broken(state: State) -> State:
    """Return the state without the records of which no page can be made; each becomes a problem.

    Records come from other machines. What the bounds of ``ivhl.records.bounds`` do not foresee in
    one of them must not keep the pages from all others.

    Args:
        state: The project with all of its records.
    """
    good, problems = [], list(state.problems)
    for record in state.records:
        alone = replace(
            state, recorded=(recorded(record),), problems=(), cells=(), cases=(), releases=None,
            workloads=(), history=None, root=None,
        )  # fmt: skip
        try:
            _make_all(Source(alone))
        except Exception as error:  # noqa: BLE001  (whatever it is, the others are shown)
            name = "/".join(map(str, (*case_of(record), record.commit)))
            text = f"{name}: cannot be shown: {type(error).__name__}: {error}"
            problems.append(text[:_LONGEST])
        else:
            good.append(record)
    return replace(
        state, recorded=tuple(map(recorded, good)), problems=tuple(problems), history=None
    )


def _make_all(source: Source) -> None:
    for place in source.page.places:
        front_view(source, place)
        matrix_views(source, place)
    for row in source.rows:
        case_view(source, row.series)
        cell_details(source, row)
        source.points_of(source.course(row))
    regressions_view(source)
    sides = sides_of(source)
    choices(source, sides)
    for _, entries in side_files(sides):
        side(source, entries)
    environment_views(source)
    for line in run_lines(source):
        run_view(source, line)
