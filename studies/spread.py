"""How much repeated runs of a case differ, and how often intervals predicted it.

``python -m studies.spread`` prints it. The interval of a run is computed from the runs of all other
cases, and from those of its own case but the one that it predicts (cross-validation).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from ivhl.cli.declared import warn_unread
from ivhl.cli.screen import check_suffix
from ivhl.errors import IvhlError, ResultsError
from ivhl.records.identity import key_of
from ivhl.tracker.store.records import load_records
from ivhl.tracker.store.spread import Spread, coverage, repeats, spreads_by_length
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.entries import Entry


ROOT: Final = Path(__file__).parents[1]


def main(argv: Sequence[str] | None = None) -> None:
    """Print how much repeated runs differ; with ``--write``, renew the variance that ivhl ships."""
    parser = argparse.ArgumentParser(prog="python -m studies.spread", description=__doc__)
    parser.add_argument("--results", type=Path, action="append", help="folder (default: results)")
    parser.add_argument("--write", type=Path, help="file, as ivhl/tracker/store/spread.json")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    check_suffix(arguments.write, ".json")
    try:
        found = measure(tuple(arguments.results or (ROOT / "results",)))
    except IvhlError as error:
        sys.exit(f"{error}\nnext: {error.hint}")
    if arguments.write is not None:
        text = json.dumps(found["spreads"], indent=1) + "\n"
        arguments.write.write_text(text, encoding="utf-8")
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        _print(found)


def measure(folders: Sequence[Path]) -> dict[str, Any]:
    """Return how much the repeated runs in folders of results differ.

    Raises:
        ResultsError: If no case was run twice.
    """
    loaded = [load_records(folder) for folder in folders]
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
    return {
        "cases": len(groups),
        "runs": sum(map(len, groups)),
        "speedup": coverage(groups)._asdict(),
        "aa": coverage(groups, "aa")._asdict(),
        "aa_mean": _aa(record for records in runs for record in _repeated(records, groups)),
        "spreads": {name: _as_dict(spread) for name, spread in learnt.items()},
    }


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


if __name__ == "__main__":
    main()
