"""``ivhl import``: records of other machines."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ivhl.cli import app
from ivhl.errors import ResultsError
from ivhl.fleet.bring import bring
from ivhl.matrix.project import find_root
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.fleet.bring import Brought
    from ivhl.fleet.sources import Refused

_PLACES_SHOWN = 3


class RefusedError(ResultsError):
    """Something that was to be imported is not taken; everything else is."""

    exit_code: ClassVar[int] = 6


@app.command("import")
def import_command(
    records: Annotated[
        list[Path], typer.Argument(help="Files of records, folders that hold some, or zips.")
    ],
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder to take them into (default: results).")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Take records of other machines: each once, in any order, checked one by one.

    Exit code 6 if anything was refused; everything else is taken all the same. The same command
    again takes what is left.
    """
    root = find_root()
    brought = bring(root, records, (results or root / "results").resolve())
    if as_json:
        typer.echo(json.dumps(_as_dict(brought), indent=1))
    else:
        _print(brought)
    if brought.refused:
        raise RefusedError(
            f"{counted(len(brought.refused), 'thing')} refused; everything else is taken",
            hint="do what each reason says, and run the same command again",
        )


def _as_dict(brought: Brought) -> dict[str, object]:
    return {
        "batches": [
            {**batch._asdict(), "new": brought.new[batch], "had": brought.had[batch]}
            for batch in brought.new
        ],
        "refused": [asdict(one) for one in brought.refused],
        "set_aside": [str(problem) for problem in brought.set_aside],
    }


def _print(brought: Brought) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table("machine", "device", "commit", "cell", "new", "here", box=None, pad_edge=False)
    for batch in brought.new:
        cell = Text(batch.cell)
        if batch.existing:
            cell.append(" existing environment", "yellow")
        counts = (str(brought.new[batch]), str(brought.had[batch]))
        table.add_row(Text(batch.machine), batch.device, batch.commit[:8], cell, *counts)
    if brought.new:
        console.print(table)
    new, had = brought.new.total(), brought.had.total()
    console.print(f"{counted(new, 'new record')}, {had} that were here already")
    for problem in brought.set_aside:
        console.print(f"warning: set aside: {problem}", markup=False)
    for (rule, hint), places in _by_reason(brought.refused).items():
        console.print(f"refused: {rule}", markup=False, style="red")
        for place in places[:_PLACES_SHOWN]:
            console.print(f"  {place}", markup=False)
        if len(places) > _PLACES_SHOWN:
            console.print(f"  and {len(places) - _PLACES_SHOWN} more")
        console.print(f"  next: {hint}", markup=False)
    if new:
        console.print("next: ivhl publish")


def _by_reason(refused: Iterable[Refused]) -> dict[tuple[str, str], list[str]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for one in refused:
        groups.setdefault((one.rule, one.hint), []).append(one.place)
    return groups
