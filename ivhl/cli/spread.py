"""``ivhl spread``: how much repeated runs of a case differ, and how well intervals predict it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ivhl.cli import app
from ivhl.cli.declared import check_suffix, results_folder, warn_unread
from ivhl.errors import ResultsError
from ivhl.matrix.project import find_root
from ivhl.records.identity import key_of
from ivhl.tracker.spread import Spread, coverage, repeats, spreads_by_length
from ivhl.tracker.store import load_records
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.entries import Entry


@app.command("spread")
def spread_command(
    results: Annotated[
        list[Path] | None, typer.Option(help="Folder of results; repeatable (default: results).")
    ] = None,
    *,
    write: Annotated[
        Path | None,
        typer.Option(
            help="Write the spreads to this file, in the form of ivhl/tracker/spread.json."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how much repeated runs of a case differ, and how often intervals predicted it.

    The interval of a run is computed from the runs of all other cases, and from those of its own
    case but the one that it predicts (cross-validation).
    """
    if write is not None:
        check_suffix(write, ".json", "JSON")
    root = find_root()
    folders: tuple[Path | None, ...] = (*results,) if results else (None,)
    loaded = [load_records(results_folder(folder, root)) for folder in folders]
    warn_unread((problem for one in loaded for problem in one.problems), *folders)
    # Folders may differ in conditions (idle or loaded machine): never pair runs across them.
    runs = [(*one.records, *one.replaced) for one in loaded]
    groups = [group for records in runs for group in repeats(records)]
    if not groups:
        raise ResultsError(
            "no case was run twice under the same conditions",
            hint="run some cases more than once: ivhl bench --force (in a checkout of ivhl, "
            "nox -s repeat -- --runs 10 runs the core suite ten times)",
        )
    learnt = spreads_by_length(groups)
    found = {
        "cases": len(groups),
        "runs": sum(map(len, groups)),
        "speedup": coverage(groups)._asdict(),
        "aa": coverage(groups, "aa")._asdict(),
        "aa_mean": _aa(record for records in runs for record in _repeated(records, groups)),
        "spreads": {name: _as_dict(spread) for name, spread in learnt.items()},
    }
    if write is not None:
        write.write_text(json.dumps(found["spreads"], indent=1) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        _print(found)


def _as_dict(spread: Spread) -> dict[str, Any]:
    return {
        "tau": round(spread.tau, 5),
        "scores": {name: round(s, 3) for name, s in spread.scores._asdict().items()},
        "own_scores": {name: round(s, 3) for name, s in spread.own_scores._asdict().items()},
        "pairs": spread.pairs,
        "origin": spread.origin,
    }


def _repeated(
    records: Iterable[RunRecord], groups: Iterable[Sequence[Entry]]
) -> Iterator[RunRecord]:
    """Yield the records that the groups are of."""
    known = {(entry.key, entry.recorded_at) for group in groups for entry in group}
    for record in records:
        if (key_of(record), record.recorded_at) in known:
            yield record


def _aa(records: Iterable[RunRecord]) -> dict[str, dict[str, float]]:
    """Return the geometric mean of A/A and its standard error, per number of arms."""
    logs: dict[str, list[float]] = {}
    for record in records:
        if record.aa is not None:
            arms = 3 + (record.formulation_eager is not None)
            logs.setdefault(f"{arms} arms", []).append(math.log(record.aa.value))
    return {
        arms: {
            "n": len(values),
            "mean": math.exp(fmean(values)),
            "error": stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan,
        }
        for arms, values in sorted(logs.items())
    }


def _print(found: dict[str, Any]) -> None:
    console = Terminal(highlight=False)
    console.print(f"{counted(found['runs'], 'run')} of {counted(found['cases'], 'repeated case')}")
    table = Table("kind", "between runs", "95 %", "98 %", "pairs", box=None)
    for name, one in found["spreads"].items():
        scores = one["scores"]
        table.add_row(
            name, f"{one['tau']:.2%}", *(f"{s:.2f}" for s in scores.values()), str(one["pairs"])
        )
    console.print(table)
    for ratio in ("speedup", "aa"):
        one = found[ratio]
        console.print(
            f"{ratio}: {one['pairs']} pairs of runs. The second run is inside the first's interval "
            f"for another run in {one['another_run']:.1%}, inside the interval of its own rounds "
            f"in {one['within_run']:.1%}, and judged slower in {one['slower']:.2%} of them"
        )
    for arms, one in found["aa_mean"].items():
        console.print(
            f"A/A with {arms}: {one['mean'] - 1:+.2%} +- {one['error']:.2%} ({one['n']} records)"
        )
