"""``ivhl regressions``: what changed in the stored history, newest first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ivhl.cli import app, options
from ivhl.cli.declared import known_changes, matrix_beside_records, stored
from ivhl.cli.names import narrow, recorded
from ivhl.cli.screen import fold, give, picked, screen
from ivhl.git import commit_order
from ivhl.records.identity import titles_of
from ivhl.records.text import printable
from ivhl.tracker.changes.confirmations import confirmation_of, with_confirmed
from ivhl.tracker.changes.disturbed import disturbed_of, left_out
from ivhl.tracker.changes.incidents import KnownCauses, counts_of_changes
from ivhl.tracker.changes.kinds import WORSE
from ivhl.tracker.changes.regressions import Change, Incident, changes_of, incidents_of
from ivhl.tracker.changes.series import ALONG
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, shown_reason

if TYPE_CHECKING:
    from ivhl.tracker.store.entries import Entry

# Newest incidents that fill a screen with a case each.
_SCREEN = 8


@app.command("regressions")
@options.choosing()
def regressions_command(along: options.Along = None, *, asked: options.Asked) -> None:
    """List what newly failed, broke more graphs or got slower in the history.

    Looks along commits, PyTorch releases and Pythons. Changes at one place are one incident. --all
    also lists improvements. --output writes the changes as .csv, or .json.
    """
    root, folder, index = stored(asked.results)
    kept = narrow(index.entries, matrix_beside_records(root), **asked.chosen)
    ids = {entry.id for entry in kept}

    def wanted(entry: Entry) -> bool:
        return entry.id in ids

    axes = recorded("axis", along, ALONG)
    order, fields = commit_order(root), [one for one in ALONG if one in axes]
    found = changes_of(index, index.spreads, order, fields, wanted=wanted)
    known = known_changes(folder, root)
    if "commit" in fields:
        found = with_confirmed(found, known.confirmations, index, order, wanted=wanted)
    incidents = incidents_of(change for change in found if asked.every or change.kind in WORSE)
    if asked.is_for_programs:
        listed = [_as_dict(one, known) for one in incidents]
        rows = (change for one in listed for change in one["changes"])
        give("ivhl.regressions/1", asked.output, rows, incidents=listed)
        return
    with screen(every=asked.every) as console:
        shown = incidents if asked.every else incidents[:_SCREEN]
        for incident in shown:
            _print(console, incident, known)
        if incidents and not asked.every:
            older = counted(len(incidents) - len(shown), "older incident")
            text = f"{older}; " * (shown != incidents)
            fold(console, f"{text}the largest change of each: --all lists all", "bright_black")
        if not incidents:
            fold(console, f"nothing got worse in {counted(len(kept), 'record')}")
        if loud := left_out(kept, disturbed_of(index.entries)):
            fold(console, loud, "bright_black")


def _print(console: Terminal, incident: Incident, known: KnownCauses) -> None:
    fold(console, _sentence(incident, known), "bold")
    if cause := known.causes(incident.changes):
        fold(console, f"known: {printable(cause)}", "cyan", indent=2, short=True)
    elif incident.worse:
        fold(console, "cause not known", "bright_black", indent=2)
    titles = titles_of(change.case for change in incident.changes)
    for change in incident.changes if console.every else incident.changes[:1]:
        style = "red" if incident.worse else "green"
        fold(console, _line(change, titles[change.case]), style, indent=2)
        reason = shown_reason(printable(change.reason))
        fold(console, reason, "bright_black", indent=4, short=True)
        if again := confirmation_of(change, known.confirmations):
            word = again.state(change) or again.verdict
            text = f"{word} in {counted(again.rounds, 'round')}: "
            text += shown_reason(printable(again.text))
            fold(console, text, "cyan", indent=4, short=True)


def _sentence(incident: Incident, known: KnownCauses) -> str:
    """Return e.g. ``PyTorch 2.5.1 -> 2.6.0: 3 fail, 1 slower; 1 over, 3 persist (2026-11-22)``."""
    counts, states = counts_of_changes(incident.changes), known.states(incident.changes)
    return f"{incident.title('->')}: {counts}; {states} ({incident.at[:10]})"


def _line(change: Change, title: str) -> str:
    # Slower is a speedup below 1x and seconds above it: the number alone would not say which.
    effect = "" if change.effect is None else f", {change.effect_of} {change.effect:.2f}x"
    place = ", ".join(change.case.place)
    return f"{change.kind}{effect}  {title}  {place}  [{change.state}]"


def _as_dict(incident: Incident, known: KnownCauses) -> dict[str, Any]:
    return {
        **picked(incident, "along before place worse at"),
        "cause": known.causes(incident.changes),
        "changes": [
            {
                **change.case._asdict(),
                **{k: v for k, v in asdict(change).items() if k != "case"},
                "note": known.cause(change),
                "confirmation": asdict(again)
                if (again := confirmation_of(change, known.confirmations))
                else None,
            }
            for change in incident.changes
        ],
    }
