"""What changed: the incidents of ``ivhl regressions``, for the pages and the feed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ivhl.records.identity import titles_of
from ivhl.tracker.changes.confirmations import confirmation_of
from ivhl.tracker.changes.disturbed import left_out
from ivhl.tracker.changes.incidents import STATES, counts_of_changes
from ivhl.tracker.changes.kinds import WORSE
from ivhl.tracker.store.metrics import WORDS
from ivhl.tracker.views.source import MOST_INCIDENTS, Source, View, case_page
from ivhl.tracker.wording import counted, short_message, shortened, times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.tracker.changes.regressions import Change, Incident
    from ivhl.tracker.store.entries import Entry

# An incident lists so many cases; `ivhl regressions --all` has all.
MOST_CASES = 40
_LONGEST_REASON = 300
_AROUND = 12  # points of the small picture on each side of the change


# Cases of all incidents that the page shows: the newest have more.
MOST_CHANGES = 120


def regressions_view(source: Source) -> View:
    """Return the page *Regressions*: all incidents, newest first.

    Facts:
        left_out: Number of older incidents.
        disturbed: Which runs are in no step in time, as a sentence; empty if none is left out.
    """
    shown = source.incidents[:MOST_INCIDENTS]
    views = incident_views(source, shown, MOST_CHANGES)
    disturbed = left_out(source.history.entries, source.disturbed)
    left = len(source.incidents) - len(shown)
    return View(incidents=views, left_out=left, disturbed=disturbed)


def incident_views(source: Source, incidents: Iterable[Incident], room: int) -> tuple[View, ...]:
    """Return incidents as the pages show them, with ``room`` changes together, and one of each."""
    views: list[View] = []
    for one in incidents:
        views.append(incident_view(source, one, max(1, min(MOST_CASES, room))))
        room -= len(views[-1].changes)
    return tuple(views)


def incident_view(source: Source, incident: Incident, most: int = MOST_CASES) -> View:
    """Return an incident as the pages show it, with the largest of its changes.

    Facts:
        id: Stable, for links and the feed.
        listed: Whether the page *Regressions* has it.
        between: Which releases or Pythons between both were not run, as text; empty if none.
        cause: See ``incidents.KnownCauses.causes``.
    """
    title = incident.title("→")
    titles = titles_of(change.case for change in incident.changes)
    views = tuple(
        _change_view(source, change, titles[change.case]) for change in incident.changes[:most]
    )
    return View(
        id=f"i{hashlib.sha256(chr(0).join(incident.key).encode()).hexdigest()[:12]}",
        listed=incident.key in source.listed,
        title=title[0].upper() + title[1:],
        between=_between(source, incident),
        counts=counts_of_changes(incident.changes),
        worse=incident.worse,
        along=incident.along,
        at=incident.at,
        cause=source.known.causes(incident.changes),
        states=source.known.states(incident.changes),
        worst=_worst(views[0]) if views else "",
        changes=views,
        left_out=len(incident.changes) - len(views),
    )


def _between(source: Source, incident: Incident) -> str:
    """Return which names lie between those of an incident: each may be what changed it."""
    if incident.along == "commit":
        return ""
    names = source.names[incident.along]
    skipped = names[names.index(incident.before) + 1 : names.index(incident.place)]
    if len(skipped) > 1:
        what = counted(len(skipped), "release" if incident.along == "torch" else "Python")
        return f"{what} between them were not run with this code"
    return f"{skipped[0]}, between them, was not run with this code" if skipped else ""


def _worst(view: View) -> str:
    """Return the largest change; of facts and times the first clause, which says what moved."""
    if view.effect and view.kind in ("slower", "eager slower", "faster"):
        return f"{view.case}, {view.effect}; {view.reason.partition(';')[0]}"
    if view.kind == "fixed":
        return f"{view.case}; before: {view.reason}"
    reason = view.reason if view.kind == "fails" else view.reason.partition(";")[0]
    return f"{view.case}; {reason}"


def _change_view(source: Source, change: Change, title: str) -> View:
    curve, at = _curve(source, change) if change.effect_of == "speedup" else ((), 0)
    case = change.case
    series = case.row
    known = source.known
    state = known.state(change)
    again = confirmation_of(change, known.confirmations)
    return View(
        case=title,
        href=case_page(series) if series in source.by_series else "",
        place=", ".join(case.place),
        kind=change.kind,
        worse=change.kind in WORSE,
        effect=_effect(source, change),
        reason=shortened(short_message(change.reason), _LONGEST_REASON),
        state=state,
        state_text=STATES[state],
        again="" if again is None else f"{again.text}, in {counted(again.rounds, 'round')}",
        note=known.cause(change),
        command=change.command,
        curve=curve,
        at=at,
    )


def _effect(source: Source, change: Change) -> str:
    """Return what moved; never a number that contradicts whether it is worse.

    Facts:
        effect: What moved, as text: the speedup before and after it, or the factor of the seconds
            that decided. Empty for failures, and where the speedup moved the other way than the
            case: a fact decided there.
        curve: Speedups around the change, for a small picture; ``None`` where there is none. Empty
            where seconds decided.
        at: Index in ``curve`` of the first point after the change.
        again: What measuring both commits again gave; empty if nobody did.
    """
    if change.effect is None:
        return ""
    if change.effect_of != "speedup":
        return f"{WORDS[change.effect_of]} {times(change.effect)} as long"
    # A disturbed run may lie between both.
    by_name = {point.name: _speedup(point.entry) for point in source.points(change)}
    was, now = by_name.get(change.before), by_name.get(change.place)
    if was is None or now is None or (now < was) != (change.kind in WORSE):
        return ""
    return f"speedup {times(was)} to {times(now)}"


def _curve(source: Source, change: Change) -> tuple[tuple[float | None, ...], int]:
    """Return the speedups of the series in which the change is, and the index of its place."""
    points = source.points(change)
    names = [point.name for point in points]
    if change.place not in names:
        return (), 0
    at = names.index(change.place)
    start, end = max(0, at - _AROUND), at + _AROUND
    values = tuple(_speedup(point.entry) for point in points[start:end])
    return values, at - start


def _speedup(entry: Entry) -> float | None:
    found = entry.values.get("speedup")
    return None if found is None else found.value
