"""``ivhl ready``: whether the dependencies of a project compile, and which hold it back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from packaging.specifiers import SpecifierSet
from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.names import the_one
from ivhl.cli.screen import picked, print_json, screen
from ivhl.observatory.dependencies import installed, read_dependencies
from ivhl.observatory.ready import NOT_RUN, Readiness, read_observatory, readiness
from ivhl.observatory.views import BAD_WORDS, RIGHT_WORDS
from ivhl.tracker.terminal import Columns
from ivhl.tracker.wording import counted, short_message, some

if TYPE_CHECKING:
    from ivhl.observatory.dependencies import Dependencies
    from ivhl.observatory.ready import Judged

_NAMED = 10


@app.command("ready")
def ready_command(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="requirements.txt, pyproject.toml, uv.lock, pylock.toml, a project or an "
            "environment (default: the environment that runs ivhl)."
        ),
    ] = None,
    python: options.OnePython = None,
    torch: options.OneRelease = None,
    records: options.Records = None,
    *,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Say which dependencies of a project compile, and on which release all do.

    From the records of the observatory: offline, and nothing is installed. Exit code 1 if a
    dependency does not compile; what nobody tried does not count.
    """
    if path is None:
        asked = installed(sys.path, "this environment")
        asked.pythons = SpecifierSet("=={}.{}.*".format(*sys.version_info))
    else:
        asked = read_dependencies(path)
    observed = read_observatory(records)
    tried = {pair for verdicts in observed.values() for pair in verdicts}
    torch = torch and the_one("PyTorch release", torch, {pair.torch for pair in tried})
    python = python and the_one("Python", python, {pair.python for pair in tried})
    found = readiness(asked, observed, python=python or "", torch=torch or "")
    if as_json:
        pairs = {name: getattr(found, name) for name in ("pair", "newest", "later")}
        print_json(
            "ivhl.ready/1",
            place=asked.place,
            judged=[one._asdict() for one in found.judged],
            **{name: pair and pair._asdict() for name, pair in pairs.items()},
            **picked(found, "holding unknown others"),
        )
    else:
        with screen(every=every) as console:
            console.print(Text(_head(asked, found), "bold"))
            lines = Columns("", "", "")
            for one in found.judged:
                style = "green" if one.word in RIGHT_WORDS else "yellow"
                style = "red" if one.word in BAD_WORDS else style
                lines.add_row(f"  {_named(one)}", Text(one.word, style), _about(one))
            if found.judged:
                console.print(lines)
            for text in _rest(found):
                console.print(text)
    if found.bad:
        raise typer.Exit(1)


def _head(asked: Dependencies, found: Readiness) -> str:
    packages = counted(len({one.name for one in asked.packages}), "package")
    if found.pair is None:
        return f"{asked.place}: nothing of its {packages} was tried with what it asks for"
    n_tried = sum(one.word != NOT_RUN for one in found.judged)
    return f"{asked.place} with {found.pair}: {n_tried} of {packages} tried"


def _named(one: Judged) -> str:
    return f"{one.name} {one.version}{one.asked and f' (asked: {one.asked})'}".rstrip()


def _about(one: Judged) -> str:
    return short_message(one.why) if one.why else one.over_releases


def _rest(found: Readiness) -> list[str]:
    lines = []
    if found.unknown:
        lines.append(f"not tried, with torch or from no index: {some(found.unknown, _NAMED)}")
    if found.others:
        lines.append(f"not in the observatory: {counted(found.others, 'package')}")
    if found.newest is not None:
        lines.append(f"Newest on which all compile: {found.newest}.")
    elif found.pair is not None:
        lines.append("There is no Python and release on which all are known to compile.")
    if found.later is not None:
        held = some(found.holding, _NAMED)
        lines.append(f"{found.later} is held back by {held}, and by nothing else.")
    return lines
