"""What commands print: a screen of it unless more is asked for, JSON, or a file."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import CaptureError
from rich.text import Text

from ivhl.errors import SpecError
from ivhl.records.files import replaced_whole
from ivhl.tracker.support.table import csv_text
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


LINES: Final = 40
# Columns of which a reason fills one line; on fewer it is folded, and no less of it is shown.
_WIDTH: Final = 100


@contextmanager
def screen(
    *, every: bool, more: str = "--all prints all", soft_wrap: bool = True
) -> Iterator[Terminal]:
    """Yield a console of which at most 40 lines are printed, then what prints the others.

    Args:
        every: Whether to print all lines.
        more: How to see more.
        soft_wrap: Whether the terminal wraps long lines, and not the console.
    """
    console = Terminal(every=every, soft_wrap=soft_wrap)
    if every:
        yield console
        return
    try:
        with console.capture() as captured:
            yield console
    finally:  # also before an error, or an exit code
        with suppress(CaptureError):  # the error of a full disk behind the output goes on
            _print_first(console, captured.get().splitlines(keepends=True), more)


def _print_first(console: Terminal, lines: Sequence[str], more: str) -> None:
    """Print the lines that fit a screen, then how many do not and what prints them."""
    shown, rows = 0, 0
    for line in lines:
        length = Text.from_ansi(line.rstrip("\n")).cell_len
        rows += max(1, -(-length // console.width))
        if rows >= LINES and (shown + 1 < len(lines) or rows > LINES):
            break
        shown += 1
    typer.echo("".join(lines[:shown]), nl=False)
    if hidden := len(lines) - shown:
        console.print(f"... {counted(hidden, 'more line')}: {more}", style="bright_black")


def fold(
    console: Terminal, text: str, style: str = "", *, indent: int = 0, short: bool = False
) -> None:
    """Print a text between words on as many lines as it needs, all of them indented.

    Args:
        console: Where it is printed.
        text: A line below its subject.
        style: Style of the text.
        indent: Spaces before each line.
        short: Whether to print what fits a line of 100 columns, unless everything is asked for.
    """
    room = max(console.width, _WIDTH) - 7
    if short and not console.every and cell_len(text) > room:
        text = f"{set_cell_size(text, room)}..."
    for line in Text(text, style).wrap(console, max(console.width - indent, 1), overflow="fold"):
        line.rstrip()
        console.print(Text(" " * indent).append_text(line), soft_wrap=True)


def print_json(schema: str, **values: object) -> None:
    """Print an object as JSON, with the name of its schema (docs/schemas)."""
    typer.echo(json.dumps({"schema": schema, **values}, indent=1))


def give(
    schema: str, output: Path | None, table: Iterable[Mapping[str, Any]], **values: object
) -> None:
    """Print an answer as JSON, or write it: all of it as JSON, a table as CSV, by the suffix.

    Raises:
        ResultsError: If the file cannot be written.
    """
    if output is None:
        print_json(schema, **values)
        return
    rows = list(table)
    whole = {"schema": schema, **values}
    text = (
        json.dumps(whole, indent=1) + "\n" if output.suffix.lower() == ".json" else csv_text(rows)
    )
    with replaced_whole(output) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    typer.echo(f"{output}: {counted(len(rows), 'row')}")


def picked(one: object, names: str) -> dict[str, Any]:
    """Return attributes of an object by their names, for JSON: only what programs are promised."""
    return {name: getattr(one, name) for name in names.split()}


def check_suffix(path: Path | None, *suffixes: str) -> None:
    """Refuse a file to write that is none, or whose name says that it holds something else.

    Raises:
        SpecError: If the name does not end in one of the suffixes, or nothing can be put there.
    """
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        first = suffixes[0]
        raise SpecError(
            f"{path}: the name must end in {' or '.join(suffixes)}, which sets the format",
            hint=f"e.g. {path.with_suffix(first)}" if path.name else f"e.g. records{first}",
        )
    if path.exists() and not path.is_file():
        raise SpecError(f"{path}: must be a file or not exist", hint="choose another name")
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        text = f"{path}: must be in a folder that exists and can be written"
        raise SpecError(text, hint=f"make {path.parent}, or choose another folder")


def check_github(form: str | None, what: str) -> None:
    """Raise an error if findings are asked of a command that has none.

    Raises:
        SpecError: If the form is not that of GitHub.
    """
    if form not in (None, "github"):
        raise SpecError(f"--format {form}: prints {what}, no findings", hint="--format github")
