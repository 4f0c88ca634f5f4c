"""``ivhl regressions``: what changed in the stored history, newest first."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ivhl.cli import app
from ivhl.cli.declared import check_any, known_changes, results_folder, warn_unread
from ivhl.errors import UnknownNameError
from ivhl.git import commit_order
from ivhl.matrix.project import find_root
from ivhl.records.text import printable
from ivhl.tracker.annotations import note_of
from ivhl.tracker.changes import WORSE
from ivhl.tracker.confirmations import confirmation_of, with_confirmed
from ivhl.tracker.disturbed import disturbed_of, left_out
from ivhl.tracker.history import changes_of
from ivhl.tracker.incidents import counts_of_changes
from ivhl.tracker.index import open_index
from ivhl.tracker.regressions import incidents_of
from ivhl.tracker.series import ALONG
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, shown_reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ivhl.tracker.entries import Entry
    from ivhl.tracker.incidents import KnownCauses
    from ivhl.tracker.regressions import Change, Incident

_WORDS = {"commit": "commit", "torch": "PyTorch", "python": "Python"}
_HASH = 8
# Newest incidents that fill a screen with a case each.
_SCREEN = 9


@app.command("regressions")
def regressions_command(
    along: Annotated[
        list[str] | None,
        typer.Option("--along", help=f"Only along this: {', '.join(ALONG)}; repeatable."),
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option("--workload", help="Only this workload; repeatable.")
    ] = None,
    machine: Annotated[
        list[str] | None, typer.Option("--machine", help="Only this machine; repeatable.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of the results (default: results).")
    ] = None,
    cases: Annotated[
        int | None,
        typer.Option("--cases", min=1, help="List all incidents, with so many cases of each."),
    ] = None,
    *,
    better: Annotated[bool, typer.Option("--better", help="Improvements, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List what newly failed, broke more graphs or got slower in the stored history.

    Looks along commits, PyTorch releases and Pythons. Changes at one place are one incident.
    """
    root = find_root()
    folder = results_folder(results, root)
    index = open_index(folder)
    warn_unread(index.problems, results)
    check_any(index, folder)
    _check("--along", along, ALONG)
    _check("workload", workload, {entry.case.workload for entry in index.entries})
    _check("machine", machine, {entry.case.machine for entry in index.entries})

    def wanted(entry: Entry) -> bool:
        case = entry.case
        return case.workload in (workload or (case.workload,)) and case.machine in (
            machine or (case.machine,)
        )

    order, fields = commit_order(root), [one for one in ALONG if one in (along or ALONG)]
    found = changes_of(index, index.spreads, order, fields, wanted=wanted)
    known = known_changes(folder, root)
    if "commit" in fields:
        found = with_confirmed(found, known.confirmations, index, order, wanted=wanted)
    incidents = incidents_of(change for change in found if better or change.kind in WORSE)
    if as_json:
        told = [_as_dict(one, known) for one in incidents]
        typer.echo(json.dumps({"schema": "ivhl.regressions/1", "incidents": told}, indent=1))
        return
    console = Terminal(highlight=False, soft_wrap=True)
    shown = incidents if cases else incidents[:_SCREEN]
    for incident in shown:
        _print(console, incident, cases or 1, known)
    if not cases and incidents:
        older = f"{counted(len(incidents) - len(shown), 'older incident')}; " * (
            shown != incidents
        )
        console.print(
            f"{older}the largest change of each: --cases N lists more", style="bright_black"
        )
    if not incidents:
        console.print(f"nothing got worse in {counted(len(index.entries), 'record')}")
    disturbed = disturbed_of(index.entries)
    if loud := [one for one in index.entries if one.id in disturbed and wanted(one)]:
        console.print(left_out(loud), style="bright_black")


def _check(kind: str, wanted: Iterable[str] | None, known: Collection[str]) -> None:
    """Raise for a name that is not known.

    Raises:
        UnknownNameError: Lists the nearest names.
    """
    for name in wanted or ():
        if name not in known:
            raise UnknownNameError(kind, name, known)


def _print(console: Terminal, incident: Incident, shown: int, known: KnownCauses) -> None:
    console.print(Text(_sentence(incident, known), "bold"))
    if cause := known.causes(incident.changes):
        console.print(Text(f"  known: {printable(cause)}", "cyan"))
    elif incident.worse:
        console.print(Text("  cause not known", "bright_black"))
    for change in incident.changes[:shown]:
        console.print(Text(f"  {_line(change)}", "red" if incident.worse else "green"))
        console.print(Text(f"    {shown_reason(printable(change.reason))}", "bright_black"))
        if again := confirmation_of(change, known.confirmations):
            word = again.state(change) or again.verdict
            console.print(
                Text(f"    {word} in {counted(again.rounds, 'round')}: ", "cyan"), end=""
            )
            console.print(Text(shown_reason(printable(again.text)), "cyan"))


def _sentence(incident: Incident, known: KnownCauses) -> str:
    """Return e.g. ``PyTorch 2.5.1 -> 2.6.0: 3 fail, 1 slower; 1 over, 3 persist (2026-11-22)``."""
    ends = (_short(incident, incident.before), _short(incident, incident.place))
    what = f"{_WORDS[incident.along]} {' -> '.join(ends)}"
    if incident.along == "python":
        what += f" on PyTorch {incident.changes[0].case.torch}"
    counts, states = counts_of_changes(incident.changes), known.states(incident.changes)
    return f"{what}: {counts}; {states} ({incident.at[:10]})"


def _short(incident: Incident, name: str) -> str:
    return name[:_HASH] if incident.along == "commit" else name


def _line(change: Change) -> str:
    # Slower is a speedup below 1x and seconds above it: the number alone would not say which.
    effect = "" if change.effect is None else f", {change.effect_of} {change.effect:.2f}x"
    place = ", ".join(change.case.place)
    return f"{change.kind}{effect}  {change.case.name}  {place}  [{change.state}]"


def _as_dict(incident: Incident, known: KnownCauses) -> dict[str, object]:
    return {
        "along": incident.along,
        "before": incident.before,
        "place": incident.place,
        "worse": incident.worse,
        "at": incident.at,
        "cause": known.causes(incident.changes),
        "changes": [
            {
                **change.case._asdict(),
                **{k: v for k, v in asdict(change).items() if k != "case"},
                "note": note_of(change, known.annotations),
                "confirmation": asdict(again)
                if (again := confirmation_of(change, known.confirmations))
                else None,
            }
            for change in incident.changes
        ],
    }
