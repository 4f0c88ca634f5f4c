"""``ivhl ready``: whether the dependencies of a project compile, and which hold it back."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mode
from typing import TYPE_CHECKING, Annotated

import typer
from packaging.specifiers import SpecifierSet
from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import warn
from ivhl.cli.names import RELEASE, the_one
from ivhl.cli.screen import picked, print_json, screen
from ivhl.observatory.dependencies import installed, read_dependencies
from ivhl.observatory.ready import NOT_RUN, Readiness, read_observatory, readiness
from ivhl.observatory.views import RIGHT_WORDS
from ivhl.tracker.support.compat import python_key
from ivhl.tracker.terminal import Columns
from ivhl.tracker.wording import counted, short_message, some

if TYPE_CHECKING:
    from ivhl.observatory.dependencies import Dependencies
    from ivhl.observatory.ready import Judged
    from ivhl.tracker.terminal import Terminal

_NAMED = 10


@app.command("ready")
def ready_command(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="requirements.txt, pyproject.toml (or '.[EXTRA,GROUP]'), uv.lock, pylock.toml, a "
            "project or an environment (default: the environment that runs ivhl)."
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
    observed, problems = read_observatory(records)
    warn(dict.fromkeys(problems), every=every, named_by="ivhl ready --all")
    tried = {pair for verdicts in observed.values() for pair in verdicts}
    pythons = {pair.python for pair in tried}
    if path is None:
        asked = installed(sys.path, "this environment")
        asked.pythons = SpecifierSet("=={}.{}.*".format(*sys.version_info))
    else:
        asked = read_dependencies(path, pythons)
    torch = None if torch is None else the_one(RELEASE, torch, {pair.torch for pair in tried})
    python = None if python is None else the_one("Python", python, pythons)
    found = readiness(asked, observed, python=python or "", torch=torch or "")
    if as_json:
        pairs = {name: getattr(found, name) for name in ("pair", "newer", "newest", "later")}
        print_json(
            "ivhl.ready/1",
            place=asked.place,
            judged=[one._asdict() for one in found.judged],
            tried=[one._asdict() for one in found.tried],
            **{name: pair and pair._asdict() for name, pair in pairs.items()},
            notes=asked.notes,
            **picked(found, "is_allowed holding unknown others"),
        )
    else:
        with screen(every=every) as console:
            _print(console, _answer(asked, found, torch or "", python or ""), asked, found)
    if found.bad:
        raise typer.Exit(1)


def _print(console: Terminal, answer: list[str], asked: Dependencies, found: Readiness) -> None:
    console.print(Text(answer[0], "bold"))
    for text in answer[1:]:
        console.print(text)
    table = Columns("", "", "", "")  # the first is the indent, also of a folded line
    for one in found.judged:
        style = "green" if one.word in RIGHT_WORDS else "yellow"
        style = "red" if one.name in found.bad else style
        table.add_row("", _named(one), Text(one.word, style), _about(one))
    if found.judged:
        console.print(table)
    if asked.unread:
        console.print(f"not read: {some(asked.unread, _NAMED)}")
    if unknown := [one for one in found.unknown if one not in asked.unread]:
        console.print(f"not in the observatory, and requires torch: {some(unknown, _NAMED)}")
    if found.others:
        console.print(f"not in the observatory: {counted(found.others, 'package')}")


def _answer(asked: Dependencies, found: Readiness, torch: str, python: str) -> list[str]:
    n_packages = len({one.name for one in asked.on_linux} - {"torch"})
    packages = counted(n_packages, "package")
    if not n_packages:
        return [f"{asked.place}: names no package for Linux beside torch", *asked.notes]
    if not found.tried:
        return [f"{asked.place}: the observatory tried none of its {packages}", *asked.notes]
    if found.pair is None:
        lines = _not_tried(asked, found, torch, python, packages)
    else:
        n_tried = sum(one.word != NOT_RUN for one in found.judged)
        days = sorted({one.at[:10] for one in found.judged if one.at})
        when = f", {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
        lines = [f"{asked.place} with {found.pair}: {n_tried} of {packages} tried{when}"]
    if forbidden := [one.name for one in found.judged if one.asked]:
        named = some(forbidden, _NAMED)
        lines.append(f"Judged by a version that {asked.place} forbids: {named}.")
    if found.newer is not None:
        lines.append(f"It allows {found.newer}, with which fewer were tried.")
    if found.pair is not None and found.newest is None:
        lines.append("No tried Python and release compiles all of them.")
    elif found.newest is not None:
        limit = "" if found.is_allowed else f", which {asked.place} does not allow"
        if python not in ("", found.newest.python):
            limit += f"; on Python {python}, no tried release compiles all of them"
        lines.append(f"Newest on which all compile: {found.newest}{limit}.")
    if found.later is not None:
        held = some(found.holding, _NAMED)
        lines.append(f"{found.later} is held back by {held}, and by nothing else.")
    return [*lines, *asked.notes]


def _not_tried(
    asked: Dependencies, found: Readiness, torch: str, python: str, packages: str
) -> list[str]:
    if not any(asked.allows(one.python) for one in found.tried):
        pythons = ", ".join(sorted({one.python for one in found.tried}, key=python_key))
        return [
            f"{asked.place}: none of its {packages} was tried on Python {python or asked.pythons}",
            f"Tried on Python {pythons}; --python chooses.",
        ]
    on = mode(one.python for one in found.tried)
    releases = ", ".join(one.torch for one in found.tried if one.python == on)
    wanted = torch or asked.versions("torch", on)
    limits = "".join(
        f", with {what} {limit}"
        for what, limit in (("torch", wanted), ("Python", python or asked.pythons))
        if limit
    )
    return [
        f"{asked.place}: none of its {packages} was tried on Linux{limits}",
        f"Tried on Python {on}: {releases}; --torch and --python choose.",
    ]


def _named(one: Judged) -> str:
    return f"{one.name} {one.version}{one.asked and f' (asked: {one.asked})'}".rstrip()


def _about(one: Judged) -> str:
    if one.word == NOT_RUN:
        return ""
    return "\n".join(filter(None, (one.over_releases, short_message(one.why))))
