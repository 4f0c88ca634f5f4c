"""``ivhl repeat``: measure a record again in its own environment."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from ivhl.bench.experiment.estimate import Estimate, duration_of_case, environments, told
from ivhl.bench.repetition import repeat
from ivhl.cli import app, options
from ivhl.cli.declared import check_any, matrix_beside_records, results_folder
from ivhl.cli.names import matching_cases, narrow, the_one
from ivhl.cli.screen import picked, print_json
from ivhl.errors import ResultsError, SpecError, UnknownNameError
from ivhl.git import find_commit
from ivhl.matrix.project import find_root
from ivhl.measure.effort import PROCESSES
from ivhl.observatory.observing import Observatory, repetition_of
from ivhl.observatory.rows import Library, read_rows
from ivhl.tracker.changes.repetition import Repetition, outcome_of
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import case_name
from ivhl.tracker.support.compat import newest_release
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.views.project import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.kinds import Kind

# As those of `ivhl gate`.
EXIT_CODES: Final[dict[Kind, int]] = {"unchanged": 0, "inconclusive": 8}
_DIFFERS: Final = 7
_WORDS: Final[dict[Kind, tuple[str, str]]] = {
    "unchanged": ("reproduces", "green"),
    "inconclusive": ("inconclusive", "yellow"),
    # A graph break less is no failure that was fixed.
    "fixed": ("differs, for the better", "red"),
}


@app.command("repeat")
def repeat_command(
    case: Annotated[
        str,
        typer.Argument(
            help="WORKLOAD/SIZE/VARIANT, or a part of it; LIBRARY/CASE/ASK of the observatory."
        ),
    ],
    python: options.OnePython = None,
    torch: options.OneRelease = None,
    commit: options.AnyCommit = None,
    machine: options.OneMachine = None,
    results: options.Results = None,
    *,
    keep: options.Keep = False,
    as_json: options.Json = False,
) -> None:
    """Build the environment of a record, run its case, and compare both.

    The newest record that fits. Exit code 0: it reproduces; 7: it does not; 8: it cannot be said.
    """
    root = find_root()
    console = Terminal(stderr=as_json, highlight=False, soft_wrap=True)
    where = {"python": python, "torch": torch, "machine": machine}
    rows = read_rows(root / LIBRARIES.parent) if (root / LIBRARIES).is_file() else ()
    if row := next((row for row in rows if row.name == case.partition("/")[0]), None):
        if commit or results or keep:
            raise SpecError(f"{case}: the observatory has no --commit, --results and --keep")
        raise typer.Exit(_repeat_observed(root, console, row, case, where, as_json))
    folder = results_folder(results, root)
    one = _newest(root, folder, case, find_commit(root, commit) if commit else None, where)
    place = f"{case_name(one)} in {one.cell.id} at {one.commit[:8]}"
    console.print(Text(f"{place}, recorded {one.recorded_at[:16]} on {one.machine.name}", "bold"))
    console.print(f"recorded: {outcome_of(one)}")
    cost = told("expected", 1, Estimate(duration_of_case(one, len(one.rounds) or PROCESSES)))
    console.print(f"{cost}; beside that, {environments(1)}")
    repeated = repeat(root, one, results=folder, console=console, keep=keep)
    if as_json:
        print_json(
            "ivhl.repetition/1",
            **picked(repeated.judged, "kind because beside"),
            lock=repeated.lock,
            recorded=outcome_of(one),
            again=asdict(repeated.again),
        )
    else:
        _print(console, repeated.judged, outcome_of(repeated.again))
        if keep:
            console.print(f"kept: {repeated.folder}")
    raise typer.Exit(EXIT_CODES.get(repeated.judged.kind, _DIFFERS))


def _newest(
    root: Path, results: Path, asked: str, commit: str | None, where: Mapping[str, str | None]
) -> RunRecord:
    """Return the newest record that fits.

    Raises:
        ResultsError: If the folder has no records at all, or none fits.
        UnknownNameError: If a name is that of nothing.
        SpecError: If those that fit are of several cases.
    """
    index = open_index(results)
    check_any(index, results)
    names = matching_cases(asked, {case_name(entry.case) for entry in index.entries})
    found = [
        entry
        for entry in index.entries
        if not {entry.case.workload, case_name(entry.case)}.isdisjoint(names)
        and commit in (None, entry.commit)
    ]
    if not found:
        raise ResultsError(
            f"{asked} has no record of commit {commit}", hint="ivhl results lists the records"
        )
    found = [*narrow(found, matrix_beside_records(root), **where)]
    the_one("case", asked, {case_name(entry.case) for entry in found})
    (newest,) = index.read([max(found, key=lambda entry: entry.recorded_at)])
    return newest


def _repeat_observed(
    root: Path,
    console: Terminal,
    row: Library,
    case: str,
    where: Mapping[str, str | None],
    as_json: bool,  # noqa: FBT001  (an option)
) -> int:
    """Ask again what the newest record of the observatory says; return the exit code."""
    observatory = Observatory(root / LIBRARIES.parent, console.print)
    known = [(f"{one.library}/{one.case}/{one.ask}", one) for one in observatory.known.values()]
    name = the_one("case", case, {name for name, _ in known})
    of_case = [one for named, one in known if named == name]
    try:
        found = narrow(of_case, None, **where)
    except UnknownNameError as error:
        raise ResultsError(f"{name} has no such record: {error}", hint=error.hint) from error
    last = newest_release(one.torch for one in found)
    newest = max((one for one in found if one.torch == last), key=lambda one: one.at)
    place = f"{name} in {newest.cell}"
    console.print(Text(f"{place}, recorded {newest.at[:16]} on {newest.machine}", "bold"))
    console.print(f"recorded: {newest.why or newest.status}")
    if (again := observatory.again(newest, row)) is None:
        return EXIT_CODES["inconclusive"]
    judged = repetition_of(newest, again)
    if as_json:
        print_json(
            "ivhl.repetition/1",
            **picked(judged, "kind because beside"),
            lock=f"{newest.lock} {newest.overlay or ''}".strip(),
            recorded=newest.why or newest.status,
            again=again.model_dump(by_alias=True),
        )
    else:
        _print(console, judged, again.why or again.status)
    return EXIT_CODES.get(judged.kind, _DIFFERS)


def _print(console: Terminal, judged: Repetition, now: str) -> None:
    console.print(f"again: {now}")
    word, style = _WORDS.get(judged.kind, (f"differs, {judged.kind}", "red"))
    console.print(Text(f"{word}: {judged.because}", style))
    for line in judged.beside:
        console.print(f"  {line}")
