"""``ivhl import``: import records of other machines."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import folder_to_write
from ivhl.cli.screen import print_json
from ivhl.errors import ResultsError, SpecError
from ivhl.fleet.bring import Imported, import_records
from ivhl.fleet.observed import import_queue
from ivhl.fleet.queue import FleetQueue
from ivhl.fleet.signed import load_attestations
from ivhl.matrix.project import find_root
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.terminal import Columns, Terminal
from ivhl.tracker.wording import counted, some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.fleet.signed import Attested

_PLACES_SHOWN = 3


class RefusedError(ResultsError):
    """At least one record was refused; all others were imported."""

    exit_code: ClassVar[int] = 6


@app.command("import")
def import_command(
    records: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Record files, or folders with such files (default: the results of the queue)."
        ),
    ] = None,
    results: options.Results = None,
    attestation: options.Attestation = None,
    signer: options.Signer = None,
    *,
    as_json: options.Json = False,
) -> None:
    """Import records from other machines. Checks each record and skips duplicates.

    Exit code 6 if a record was refused; the others are imported. Running the same command again
    imports only what is missing.
    """
    root = find_root()
    if (attestation is None) != (signer is None):
        raise SpecError(
            "--attestation and --signer: give both or neither",
            hint="--signer names the repository whose workflow you trust, as OWNER/NAME",
        )
    attested = load_attestations(attestation, signer) if attestation and signer else ()
    imported = _imported(root, records or (), results, attested)
    if as_json:
        print_json(
            "ivhl.import/1",
            batches=[
                {**batch._asdict(), "new": new, "had": imported.had[batch]}
                for batch, new in imported.new.items()
            ],
            refused=[asdict(one) for one in imported.refused],
        )
    else:
        _print(imported)
    if imported.refused:
        raise RefusedError(
            f"{len(imported.refused)} refused; "
            f"{'all others were' if imported.new else 'nothing was'} imported",
            hint="fix what each reason names, then run the same command again",
        )


def _imported(
    root: Path,
    records: Sequence[Path],
    results: Path | None,
    attested: Sequence[Attested],
) -> Imported:
    if records:
        folder = folder_to_write(results or root / "results")
        return import_records(root, records, folder, attested=attested)
    if not (queue := os.environ.get("IVHL_QUEUE")):
        raise SpecError(
            "neither files nor a queue are given",
            hint="name files of records, or set IVHL_QUEUE to the address of the queue's owner",
        )
    with FleetQueue(queue, Terminal(stderr=True).print) as opened:
        return import_queue(root, opened)


def _print(imported: Imported) -> None:
    console = Terminal(highlight=False, soft_wrap=True)
    table = Columns("machine", "device", "commit", "cell", "new", "here")
    for batch in imported.new:
        cell = Text(batch.cell)
        if batch.existing:
            cell.append(" existing environment", "yellow")
        counts = (str(imported.new[batch]), str(imported.had[batch]))
        table.add_row(Text(batch.machine), batch.device, batch.commit[:8], cell, *counts)
    if imported.new:
        console.print(table)
    new, had = imported.new.total(), imported.had.total()
    console.print(f"{counted(new, 'new record')}, {had} already present")
    reasons = grouped_by(imported.refused, lambda one: (one.rule, one.hint))
    for (rule, hint), alike in reasons.items():
        console.print(f"refused: {rule}", style="red")
        places = [f"  {one.place}" for one in alike]
        console.print(some(places, _PLACES_SHOWN, "\n"))
        console.print(f"  next: {hint}")
    if new:
        console.print("next: ivhl publish")
