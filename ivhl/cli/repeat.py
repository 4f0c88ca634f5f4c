"""``ivhl repeat``: measure a record again in its own environment."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from ivhl.bench.experiment.estimate import Estimate, duration_of_case, environments, told
from ivhl.bench.repetition import repeat
from ivhl.cli import app, options
from ivhl.cli.complete import complete_cases
from ivhl.cli.declared import check_any, matrix_beside_records, results_folder
from ivhl.cli.names import RELEASE, commands_of, matching_cases, recorded, some
from ivhl.cli.screen import picked, print_json
from ivhl.errors import ResultsError, SpecError
from ivhl.git import find_commit
from ivhl.matrix.project import find_root
from ivhl.measure.effort import PROCESSES
from ivhl.tracker.changes.repetition import outcome_of
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import case_name
from ivhl.tracker.support.compat import release_key
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ivhl.bench.repetition import Repeated
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
# Values that a hint names.
_LISTED = 16


@app.command("repeat")
def repeat_command(
    case: Annotated[
        str,
        typer.Argument(
            help="WORKLOAD/SIZE/VARIANT, or a part of it.", autocompletion=complete_cases
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
    folder = results_folder(results, root)
    console = Terminal(stderr=as_json, highlight=False, soft_wrap=True)
    found = _in_results(folder, case)
    wanted = {
        "Python": python,
        RELEASE: torch,
        "commit": find_commit(root, commit) if commit else None,
        "machine": machine,
    }
    one = _choose(found, wanted, case, commands_of(matrix_beside_records(root)))
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
        _print(console, repeated, keep=keep)
    raise typer.Exit(EXIT_CODES.get(repeated.judged.kind, _DIFFERS))


def _in_results(results: Path, case: str) -> list[RunRecord]:
    """Return the records of a case.

    Raises:
        ResultsError: If the folder has no records at all.
        UnknownNameError: If there is none of this case.
    """
    index = open_index(results)
    check_any(index, results)
    cases = {case_name(entry.case) for entry in index.entries}
    names = matching_cases(case, cases)
    return list(
        index.read(
            entry
            for entry in index.entries
            if not {entry.case.workload, case_name(entry.case)}.isdisjoint(names)
        )
    )


def _choose(
    found: Sequence[RunRecord],
    wanted: Mapping[str, str | None],
    asked: str,
    measured_by: Mapping[str, Mapping[str, str]],
) -> RunRecord:
    """Return the newest record that fits.

    Raises:
        UnknownNameError: If a name is that of nothing.
        ResultsError: If it is known, but of no record that fits.
        SpecError: If they are of several cases.
    """
    left: Sequence[RunRecord] = found
    for name, text in wanted.items():
        if text is None:
            continue
        known = {_value(record, name) for record in left}
        every = {_value(record, name) for record in found}
        # A commit is known to git, and another name to records that another option left out.
        names = (
            recorded(name, [text], every, measured_by.get(name)) if name != "commit" else {text}
        )
        left = [record for record in left if _value(record, name) in names]
        if not left:
            listed = sorted(known, key=release_key if name == RELEASE else str)
            raise ResultsError(
                f"{asked} has no such record of {name} {text}",
                hint=f"known: {some(listed, _LISTED)}",
            )
    cases = sorted({case_name(record) for record in left})
    if len(cases) > 1:
        raise SpecError(
            f"{asked} has records of {counted(len(cases), 'case')}",
            hint=f"name one: {some(cases, _LISTED)}",
        )
    return max(left, key=lambda record: record.recorded_at)


def _value(record: RunRecord, name: str) -> str:
    values = {
        "Python": record.cell.python,
        RELEASE: record.cell.torch,
        "commit": record.commit,
        "machine": record.machine.name,
    }
    return values[name]


def _print(console: Terminal, repeated: Repeated, *, keep: bool) -> None:
    judged = repeated.judged
    console.print(f"again: {outcome_of(repeated.again)}")
    word, style = _WORDS.get(judged.kind, (f"differs, {judged.kind}", "red"))
    console.print(Text(f"{word}: {judged.because}", style))
    for line in judged.beside:
        console.print(f"  {line}")
    if keep:
        console.print(f"kept: {repeated.folder}")
