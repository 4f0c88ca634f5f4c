"""``ivhl results``: the records, on the terminal or as a file for other tools."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import matrix_beside_records, stored
from ivhl.cli.names import narrow
from ivhl.cli.screen import LINES, give, picked, screen
from ivhl.tracker.store.records import case_name, is_existing
from ivhl.tracker.support.compat import format_speedup, status_of
from ivhl.tracker.support.table import STYLES
from ivhl.tracker.terminal import Columns
from ivhl.tracker.wording import ANOTHER_RUN, STATUS_WORDS, counted, marked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.spread import Spreads


@app.command("results")
@options.choosing()
def results_command(asked: options.Asked) -> None:
    """List the records, newest first.

    --json prints them as stored, with all samples. --output writes .csv or .json.
    """
    root, _, index = stored(asked.results, every=True)
    newest = sorted(index.entries, key=lambda entry: (entry.recorded_at, entry.key), reverse=True)
    entries = narrow(newest, matrix_beside_records(root), **asked.chosen)
    if asked.is_for_programs:
        records = index.read(entries)
        rows = (_row(record, index.spreads) for record in records)
        give("ivhl.results/1", asked.output, rows, records=[asdict(record) for record in records])
        return
    shown = entries if asked.every else entries[:LINES]
    more = f"--all prints all {counted(len(entries), 'record')}"
    with screen(every=asked.every, more=more, soft_wrap=False) as console:
        console.print(
            f"{counted(len(entries), 'record')}, newest first; in brackets: {ANOTHER_RUN}",
            style="bright_black",
        )
        for part in _by_case(index.read(shown), index.spreads):
            console.print(part)


def _by_case(records: Iterable[RunRecord], spreads: Spreads) -> Iterator[RenderableType]:
    """Yield a heading per case and its records; case names are too long for a table column."""
    for case, group in groupby(records, case_name):
        yield Text(case, "bold")
        table = Columns("", "", "", "")
        for record in group:
            status = status_of(record, spreads)
            table.add_row(
                record.recorded_at[:10],
                record.commit[:8],
                record.cell.id,
                Text(f"{STATUS_WORDS[status]} {_result(record, spreads)}", STYLES[status]),
            )
        yield table


def _result(record: RunRecord, spreads: Spreads) -> str:
    another = spreads.another_run(record)
    result = format_speedup(another) if another else ""
    if record.failure is not None and record.failure.failure_class != status_of(record, spreads):
        result = record.failure.failure_class
    if record.conditions.quick:
        result += " quick"
    if is_existing(record):
        result += " existing environment"
    if record.conditions.image is not None:
        result += " in a container"
    return marked(result, record)


def _row(record: RunRecord, spreads: Spreads) -> dict[str, Any]:
    """Return a record as a row of CSV."""
    another, failure = spreads.another_run(record), record.failure
    return {
        "machine": record.machine.name,
        "device": record.conditions.device,
        **picked(record.cell, "python torch"),
        **picked(record, "workload size variant commit recorded_at"),
        "status": status_of(record, spreads),
        "speedup": another.value if another else None,
        "speedup_low": another.low if another else None,
        "speedup_high": another.high if another else None,
        "failure_class": failure.failure_class if failure else None,
        "message": failure.message if failure else None,
    }
