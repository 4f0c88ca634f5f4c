"""``ivhl observe``: every library of the observatory in many cells."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from ivhl.bench.work import parse_shard
from ivhl.cli import app, options
from ivhl.cli.names import all_named
from ivhl.cli.run import DIFFERS, cells_of, tell_of_network
from ivhl.matrix.project import find_root
from ivhl.observatory.observing import Observatory
from ivhl.observatory.rows import read_rows
from ivhl.script.cells import shipped_matrix
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.views.project import LIBRARIES
from ivhl.tracker.wording import STATUS_WORDS, counted, seconds


@app.command("observe")
def observe_command(
    *,
    library: Annotated[
        list[str] | None, typer.Argument(help="Rows of observatory/libraries.toml (default: all).")
    ] = None,
    torch: options.Releases = None,
    python: options.Pythons = None,
    shard: options.Shard = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Try the libraries of the observatory, and append what is found to its records.

    --torch also takes a range such as 2.6.0..2.15.0, all, and next. Cases with a
    record are not run again, so the same command continues a run that was killed.
    """
    folder = find_root() / LIBRARIES.parent
    told = Terminal(stderr=True, highlight=False, soft_wrap=True)
    rows = read_rows(folder, told.print)
    names = all_named("library", library, [one.name for one in rows])
    chosen = [one for one in rows if not library or one.name in names]
    if shard is not None:
        share = parse_shard(shard)
        chosen = chosen[share.index - 1 :: share.count]
    console = Terminal(highlight=False, soft_wrap=True)
    observatory = Observatory(folder, told.print)
    cells = cells_of(shipped_matrix(), torch or ["default"], python or ())
    work = observatory.work(chosen, cells, force=force)
    cost = observatory.estimate(work)
    if not work:
        console.print("nothing to run: every case has a record; --force runs all again")
        return
    console.print(
        f"{counted(cost.runs, 'run')}, about {seconds(cost.core_s)} of a core, "
        f"at most {max(cost.gigabytes, 0.1):.1f} GB on disk"
    )
    if dry_run:
        return
    tell_of_network(told, "code", network=False)
    seen: Counter[str] = Counter()
    for record in observatory.run(work, newest=force):
        seen[STATUS_WORDS[record.status]] += 1
        console.print(
            f"{seen.total()}/{cost.runs} {record.cell} {record.library} {record.case} "
            f"{' '.join((record.ask, record.inputs or '')).strip()}: {record.why}"
        )
    if not seen:
        raise typer.Exit(DIFFERS)
    console.print(", ".join(f"{word} {n}" for word, n in seen.most_common()))
