"""``ivhl compare``: two commits, releases, Pythons, machines or stored results, case by case."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ivhl.cli import app
from ivhl.cli.declared import known_releases, results_folder, warn
from ivhl.errors import ResultsError, SpecError
from ivhl.fleet.sources import printable
from ivhl.git import commits_of_same_code, find_commit
from ivhl.matrix.project import find_root
from ivhl.matrix.spec import newest_of
from ivhl.tracker.comparable import builds_beside
from ivhl.tracker.compare import KINDS, axis_of, choose, compare, summarise
from ivhl.tracker.index import open_index
from ivhl.tracker.metrics import WORDS
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.comparable import Axis
    from ivhl.tracker.compare import Comparison, Summary
    from ivhl.tracker.entries import Entry
    from ivhl.tracker.index import Index

_STYLES = {
    "broke": "red",
    "degraded": "red",
    "slower": "red",
    "mended": "green",
    "faster": "green",
}


@app.command("compare")
def compare_command(
    before: Annotated[
        str, typer.Argument(help="A commit, PyTorch release, Python, machine or results folder.")
    ],
    after: Annotated[str, typer.Argument(help="Another one of the same sort.")],
    workload: Annotated[
        list[str] | None, typer.Option("--workload", help="Only this workload; repeatable.")
    ] = None,
    python: Annotated[
        list[str] | None, typer.Option("--python", help="Only this Python; repeatable.")
    ] = None,
    torch: Annotated[
        list[str] | None, typer.Option("--torch", help="Only this PyTorch release; repeatable.")
    ] = None,
    machine: Annotated[
        list[str] | None, typer.Option("--machine", help="Only this machine; repeatable.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of the results (default: results).")
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="List unchanged cases and those of one side, too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Compare two commits, PyTorch releases, Pythons, machines or stored results.

    Means are over the cases that ran on both sides; what broke, appeared or vanished is listed.
    """
    root = find_root()
    index = open_index(results_folder(results, root))
    warn(index.problems)

    known = known_releases(root)
    releases = [newest_of(text, known) for text in torch or ()]

    def wanted(entry: Entry) -> bool:
        case = entry.case
        return (
            case.workload in (workload or (case.workload,))
            and entry.python in (python or (entry.python,))
            and entry.torch in (releases or (entry.torch,))
            and case.machine in (machine or (case.machine,))
        )

    axis, sides = _sides(root, index, (before, after), wanted)
    found = compare(*sides, axis, index.spreads)
    if not found:
        raise ResultsError(
            f"neither {before} nor {after} has a record here",
            hint="ivhl results lists the records; ivhl bench measures",
        )
    summaries = summarise(found)
    if as_json:
        typer.echo(json.dumps(_as_dict(axis, summaries, found), indent=1))
        return
    console = Terminal(highlight=False, soft_wrap=True)
    for text in builds_beside(product(*sides) if axis == "python" else ()):
        console.print(text)
    for summary in summaries:
        console.print(Text(_sentence(before, after, summary), "bold"))
        console.print(_means(summary))
    hidden = 0
    for kind in KINDS:
        group = [one for one in found if one.kind == kind]
        if kind in ("same", "appeared", "vanished", "incomparable") and not every:
            hidden += len(group)
        elif group:
            _list(console, kind, group)
    if hidden:
        console.print(f"{counted(hidden, 'case')} unchanged, of one side or incomparable: --all")


def _sides(
    root: Path, index: Index, names: tuple[str, str], wanted: Callable[[Entry], bool]
) -> tuple[Axis, tuple[Sequence[RunRecord], Sequence[RunRecord]]]:
    """Return what is compared, and the records of both sides.

    Raises:
        SpecError: If both names are no folders, nothing that records have, and no commits.
    """
    if all(Path(name).is_dir() for name in names):
        first, second = (open_index(Path(name)) for name in names)
        return "results", (_read(first, wanted), _read(second, wanted))
    entries = tuple(filter(wanted, index.entries))
    known = known_releases(root)
    # A machine or a Python may have the name of a series of releases: what records have comes first.
    for meant in (names, tuple(newest_of(name, known) for name in names)):
        if axis := axis_of(meant, entries):
            one, other = (index.read(choose(entries, axis, {name})) for name in meant)
            return axis, (one, other)
    hashes = {entry.commit for entry in entries}
    try:
        commits = [find_commit(root, name) for name in names]
    except SpecError as error:
        raise SpecError(
            f"cannot compare {names[0]!r} with {names[1]!r}: {error}",
            hint="both must be commits, or PyTorch releases, Pythons or machines with records "
            "(ivhl results), or folders of results",
        ) from error
    one, other = (
        index.read(choose(entries, "commit", commits_of_same_code(root, commit, hashes)))
        for commit in commits
    )
    return "commit", (one, other)


def _read(index: Index, wanted: Callable[[Entry], bool]) -> tuple[RunRecord, ...]:
    return index.read(filter(wanted, index.entries))


def _sentence(before: str, after: str, summary: Summary) -> str:
    """Return e.g. ``3.12 -> 3.13 on box, cpu, PyTorch 2.15.0: 26 cases, 1.00x [0.99, 1.01]``."""
    mean = summary.means.get("speedup")
    place = ", ".join(summary.place)
    if mean is None:
        return f"{before} -> {after} on {place}: no case ran on both sides in the same way"
    return (
        f"{before} -> {after} on {place}: {counted(mean.cases, 'case')} on both sides, speedup "
        f"{mean.ratio:.2f}x [{mean.low:.2f}, {mean.high:.2f}] of what it was"
    )


def _means(summary: Summary) -> str:
    seconds = [
        f"{WORDS[metric]} {mean.ratio:.2f}x [{mean.low:.2f}, {mean.high:.2f}]"
        for metric, mean in summary.means.items()
        if metric != "speedup"
    ]
    counts = ", ".join(f"{n} {kind}" for kind, n in summary.counts.items())
    return f"  {'; '.join([*seconds, counts])}"


def _list(console: Terminal, kind: str, group: Sequence[Comparison]) -> None:
    console.print(Text(f"\n{kind} ({len(group)})", _STYLES.get(kind, "bold")))
    for one in group:
        console.print(Text(f"  {one.case.name}  {', '.join(one.case.place)}"))
        if one.reason:
            console.print(Text(f"    {printable(one.reason)}", "bright_black"))


def _as_dict(
    axis: Axis, summaries: Sequence[Summary], found: Sequence[Comparison]
) -> dict[str, Any]:
    return {
        "axis": axis,
        "summaries": [
            {
                "place": summary.place,
                "means": {m: _finite(mean._asdict()) for m, mean in summary.means.items()},
                "counts": summary.counts,
            }
            for summary in summaries
        ],
        "cases": [
            {
                **one.case._asdict(),
                "kind": one.kind,
                "reason": one.reason,
                "facts": [asdict(fact) for fact in one.change.facts] if one.change else [],
                "changes": [asdict(c) for c in one.change.changes.values()] if one.change else [],
            }
            for one in found
        ],
    }


def _finite(mean: dict[str, Any]) -> dict[str, Any]:
    """Return a mean without the limits that one case does not have."""
    return {name: value for name, value in mean.items() if value not in (0.0, float("inf"))}
