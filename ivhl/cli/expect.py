"""``ivhl expect``: check the known failures against the records, and bring them up to date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ivhl.cli import app
from ivhl.cli.declared import results_folder, warn_unread
from ivhl.errors import FixedError
from ivhl.matrix.project import find_root
from ivhl.records.files import write_whole
from ivhl.records.text import printable
from ivhl.tracker.expectations import EXPECTATIONS, load_expectations
from ivhl.tracker.expecting import OF_THE_PROJECT, standings, unexpected, updated
from ivhl.tracker.project import load_state, rows_of
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, short_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.tracker.compat import Row
    from ivhl.tracker.expecting import Standing

# Cases that a line names; the rest are counted.
_NAMED = 3


@app.command("expect")
def expect_command(
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of the results (default: results).")
    ] = None,
    *,
    update: Annotated[
        bool,
        typer.Option("--update", help="Write what fails and is not expected; drop what is fixed."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the known failures, envs/expectations.toml, against the records.

    Names what each entry covers, what is fixed, what was never measured, and what fails without an
    entry. Exit code 11 if a case passes that an entry expects to fail.
    """
    root = find_root()
    expectations = load_expectations(root)
    state = load_state(root, results_folder(results, root), history=False)
    warn_unread(state.problems, results)
    rows = rows_of(state)
    console = Terminal(highlight=False, soft_wrap=True)
    if update:
        path = root / EXPECTATIONS
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        found = updated(text, expectations, rows)
        if found.text != text and (found.added or found.dropped):
            write_whole(path, found.text.encode(), root)
        for word, entries in (("dropped", found.dropped), ("added", found.added)):
            for entry in entries:
                console.print(Text(f"{word}: {printable(f'{entry.title}; {entry.why}')}"))
        expectations = load_expectations(root)
    stood = standings(expectations, rows)
    news = unexpected(expectations, rows)
    if as_json:
        typer.echo(json.dumps(_as_dict(stood, news), indent=1))
    else:
        _print(console, stood, news)
    if fixed := [row for one in stood for row in one.fixed]:
        raise FixedError(
            f"{counted(len(fixed), 'case')} fixed: {EXPECTATIONS} still expects a failure",
            hint="remove or narrow the entries: ivhl expect --update",
        )


def _print(console: Terminal, stood: Sequence[Standing], news: Sequence[Row]) -> None:
    console.print(Text(f"{EXPECTATIONS}: {counted(len(stood), 'known failure')}", "bold"))
    for one in stood:
        console.print(Text(f"  {printable(one.entry.title)}"))
        console.print(Text(f"    {printable(one.entry.why)}", "bright_black"))
        for rows, word, style in (
            (one.occurs, "occurs", "green"),
            (one.fixed, "fixed", "bold red"),
            (one.otherwise, "fails in another way", "yellow"),
        ):
            if rows:
                console.print(Text(f"    {word}: {_some(rows)}", style))
        if one.is_unmatched:
            console.print(Text("    never matches a measured case", "yellow"))
    theirs = [row for row in news if row.failure_class not in OF_THE_PROJECT]
    ours = [row for row in news if row.failure_class in OF_THE_PROJECT]
    _print_news(console, theirs, "--update writes them")
    _print_news(console, ours, "before anything is compiled: mend them, or write an entry by hand")


def _print_news(console: Terminal, news: Sequence[Row], what_next: str) -> None:
    if news:
        text = f"not expected: {counted(len(news), 'failure')} ({what_next})"
        console.print(Text(text, "bold"))
    groups: dict[str, list[Row]] = {}
    for row in news:
        text = f"{row.failure_class}: {printable(short_message(row.message))}"
        groups.setdefault(text, []).append(row)
    for text, alike in groups.items():
        console.print(Text(f"  {text}"))
        console.print(Text(f"    {_some(alike)}", "bright_black"))


def _some(rows: Sequence[Row]) -> str:
    names = [f"{_name(row)} in {row.cell} on {row.machine}" for row in rows]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{counted(len(rows), 'case')}: {'; '.join(names[:_NAMED])}{more}"


def _name(row: Row) -> str:
    return f"{row.workload}/{row.size}/{row.variant}"


def _as_dict(stood: Sequence[Standing], news: Sequence[Row]) -> dict[str, object]:
    return {
        "expected": [
            {
                **one.entry.model_dump(by_alias=True),
                **{
                    word: [_place(row) for row in rows]
                    for word, rows in (
                        ("occurs", one.occurs),
                        ("fixed", one.fixed),
                        ("otherwise", one.otherwise),
                    )
                },
                "never_matches": one.is_unmatched,
            }
            for one in stood
        ],
        "not_expected": [
            {**_place(row), "class": row.failure_class, "message": row.message} for row in news
        ],
    }


def _place(row: Row) -> dict[str, str]:
    return {"case": _name(row), "cell": row.cell, "machine": row.machine, "device": row.device}
