"""``ivhl check``: whether everything that ivhl reads of this project is in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import results_folder, stored_state
from ivhl.cli.names import all_named
from ivhl.cli.screen import fold, picked, print_json, screen
from ivhl.errors import FixedError
from ivhl.init.check import check_project
from ivhl.matrix.check import check_locks
from ivhl.matrix.project import find_root, load
from ivhl.observatory.views import load_libraries
from ivhl.records.text import printable
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import OF_THE_PROJECT, Row, Standing, standings, unexpected
from ivhl.tracker.support.expectations import EXPECTATIONS, load_expectations, never_covering
from ivhl.tracker.views.project import rows_of
from ivhl.tracker.wording import counted, short_message, some

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.tracker.support.expectations import ChangeNote
    from ivhl.tracker.terminal import Terminal

# What can be checked: every file; the matrix and its locks alone; known failures beside the records.
_WHAT = ("project", "locks", "expectations")
# Cases that a line names; the rest are counted.
_NAMED = 3


@app.command("check")
def check_command(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="project, locks or expectations (default: project)."),
    ] = None,
    results: options.Results = None,
    *,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Check every file that ivhl reads: matrix, locks, benchmarks, known failures, records.

    Needs neither torch nor a network. Exit code 1 if there is a problem. "expectations" compares
    the known failures with the records: what each entry covers, what is fixed, what fails without
    an entry. Exit code 11 if a case passes that an entry expects to fail.
    """
    parts = all_named("part", what, _WHAT)
    root = find_root()
    problems: list[str] = []
    notes: tuple[str, ...] = ()
    summary: list[str] = []
    stood: Sequence[Standing] = ()
    news: Sequence[Row] = ()
    unused: Sequence[ChangeNote] = ()
    if not parts or "project" in parts:
        report, unread = check_project(root), _unread(root, results_folder(results, root))
        problems, notes, summary = [*report.problems, *unread], report.notes, [report.summary]
    if "locks" in parts:
        problems += check_locks(root, matrix := load(root)[1])
        cells = counted(len(matrix.cells(tier="extended")), "cell")
        summary.append(f"{cells}, locks fresh, hashed and matched")
    if "expectations" in parts:
        expectations = load_expectations(root)
        rows = rows_of(stored_state(results)[-1])
        stood, news = standings(expectations, rows), unexpected(expectations, rows)
        unused = never_covering(expectations.notes, (row.in_cell for row in rows))
    if as_json:
        print_json("ivhl.check/1", problems=problems, notes=notes, **_as_dict(stood, news, unused))
    else:
        with screen(every=every) as console:
            _print(console, problems, notes, summary)
            if "expectations" in parts:
                _print_expectations(console, stood, news, unused)
    if problems:
        raise typer.Exit(1)
    if fixed := sum(len(one.fixed) for one in stood):
        raise FixedError(
            f"{counted(fixed, 'case')} fixed: {EXPECTATIONS} still expects a failure",
            hint="remove or narrow the entries of cases listed as fixed",
        )


def _unread(root: Path, results: Path) -> list[str]:
    """Return which records of cases and of libraries cannot be read."""
    found = [str(one.seen_from(results.parent)) for one in open_index(results).problems]
    return [*found, *load_libraries(root)[1]]


def _print(
    console: Terminal, problems: Sequence[str], notes: Sequence[str], summary: Sequence[str]
) -> None:
    for text in problems:
        console.label("problem:", text, "red")
    for text in notes:
        console.print(f"note: {text}")
    if problems:
        number = counted(len(problems), "problem")
        console.print(f"{number}; next: correct them; ivhl lock makes missing and stale locks")
    elif summary:
        console.print(f"in order: {'; '.join(summary)}")


def _print_expectations(
    console: Terminal, stood: Sequence[Standing], news: Sequence[Row], unused: Sequence[ChangeNote]
) -> None:
    console.print(Text(f"{EXPECTATIONS}: {counted(len(stood), 'known failure')}", "bold"))
    for one in stood:
        console.print(Text(f"  {printable(one.entry.title)}"))
        lines = [(printable(one.entry.why), "bright_black")]
        lines += [
            (f"{word}: {_some(rows)}", style)
            for rows, word, style in (
                (one.occurs, "occurs", "green"),
                (one.fixed, "fixed", "bold red"),
                (one.otherwise, "fails in another way", "yellow"),
            )
            if rows
        ]
        lines += [("matches no measured case", "yellow")] if one.is_unmatched else []
        for text, style in lines:
            fold(console, text, style, indent=4, short=True)
    for ours, what_next in (
        (False, "write an entry for each cause"),
        (True, "before compiling: fix them, or write an entry by hand"),
    ):
        mine = [row for row in news if (row.failure_class in OF_THE_PROJECT) == ours]
        _print_news(console, mine, what_next)
    if unused:
        text = f"{counted(len(unused), 'note')} on changes of unmeasured cases"
        console.print(Text(text, "bold"))
    for note in unused:
        fold(console, printable(note.why), "yellow", indent=2)


def _print_news(console: Terminal, news: Sequence[Row], what_next: str) -> None:
    if news:
        text = f"not expected: {counted(len(news), 'failure')} ({what_next})"
        console.print(Text(text, "bold"))
    groups = grouped_by(
        news, lambda row: (row.failure_class, printable(short_message(row.message)))
    )
    for (kind, message), alike in groups.items():
        console.print(Text(f"  {kind}: {message}"))
        console.print(Text(f"    {_some(alike)}", "bright_black"))


def _some(rows: Sequence[Row]) -> str:
    names = [f"{row.series.name} in {row.cell} on {row.machine}" for row in rows]
    return f"{counted(len(rows), 'case')}: {some(names, _NAMED, '; ')}"


def _as_dict(
    stood: Sequence[Standing], news: Sequence[Row], unused: Sequence[ChangeNote]
) -> dict[str, Any]:
    return {
        "expected": [
            {
                **one.entry.model_dump(by_alias=True),
                **{
                    word: [_place(row) for row in rows]
                    for word, rows in picked(one, "occurs fixed otherwise").items()
                },
                "never_matches": one.is_unmatched,
            }
            for one in stood
        ],
        "unused_notes": [one.why for one in unused],
        "not_expected": [
            {**_place(row), "class": row.failure_class, "message": row.message} for row in news
        ],
    }


def _place(row: Row) -> dict[str, str]:
    return {"case": row.series.name, **picked(row, "cell machine device")}
