"""How much repeated runs of a case differ, and how often intervals predicted it.

``python -m studies.spread`` prints it. The interval of a run is computed from the runs of all other
cases, and from those of its own case but the one that it predicts (cross-validation).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.table import Table

from ivhl.cli.declared import warn_unread
from ivhl.cli.screen import check_suffix
from ivhl.errors import IvhlError, ResultsError
from ivhl.records.identity import key_of
from ivhl.tracker.store.metrics import JUDGED, NORMAL_95, is_calibrated
from ivhl.tracker.store.spread import (
    ENOUGH_PAIRS,
    Pair,
    Spread,
    kind_of,
    learn,
    leave_out,
    pair_of,
    repeats,
    room_of,
    shipped,
)
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted
from studies.stored import load_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.metrics import Metric


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


class Coverage(NamedTuple):
    """How often the interval of one run contained the value of another run.

    Attributes:
        pairs: Number of ordered pairs of runs.
        another_run: Fraction of pairs where the interval for another run contained it.
        within_run: Fraction of pairs where the interval of the run's own rounds contained it.
        slower: Fraction of pairs where the second run would be judged slower than the first.
    """

    pairs: int
    another_run: float
    within_run: float
    slower: float


def coverage(groups: Iterable[Sequence[Entry]], metric: Metric = "speedup") -> Coverage:
    """Return how well the intervals predict held-out runs.

    The interval of a run is computed from the runs of all other cases, and from those of its own
    case but the one that it predicts.

    Args:
        groups: Runs of each case, from ``repeats``.
        metric: Which quantity. A ``slower`` run is one whose difference exceeds what the verdict
            allows, in one direction.
    """
    learnt_from = []
    for runs in groups:
        pairs = (pair_of(one, other, metric) for one, other in combinations(runs, 2))
        mine = [pair for pair in pairs if pair is not None]
        learnt_from.append((runs[0].case._replace(machine=""), kind_of(runs[0]), mine))
    held = own = slower = n = 0
    for case, kind, mine in learnt_from:
        others = [(kind_, found) for other, kind_, found in learnt_from if other != case]
        alike = [found for kind_, found in others if kind_.length == kind.length]
        if sum(map(len, alike)) < ENOUGH_PAIRS:  # too few of this length: use all lengths
            alike = [found for _, found in others]
        known = sum(map(len, alike)) >= ENOUGH_PAIRS
        spread = learn(alike) if known else shipped(kind, metric)
        for pair, past, predicted in leave_out(mine):
            here = spread.corrected_by(past) if past else spread
            first, second = pair.within[1 - predicted], pair.within[predicted]
            apart = pair.difference if predicted else -pair.difference
            scale = math.hypot(math.hypot(here.tau, first), math.hypot(here.tau, first))
            both = math.hypot(math.hypot(here.tau, first), math.hypot(here.tau, second))
            n += 1
            held += abs(apart) <= here.scores.another_95 * scale
            own += abs(apart) <= NORMAL_95 * first
            slower += apart > here.scores.verdict * both
    if not n:
        return Coverage(0, math.nan, math.nan, math.nan)
    return Coverage(n, held / n, own / n, slower / n)


def spreads_by_length(groups: Iterable[Sequence[Entry]]) -> dict[str, Spread]:
    """Return the contents of ``spread.json``: spreads per metric, instrument and length.

    Args:
        groups: Runs of each case, from ``repeats``.
    """
    found: dict[str, list[list[Pair]]] = defaultdict(list)
    for runs in groups:
        kind = kind_of(runs[0])
        for metric in JUDGED:
            of_case: dict[str, list[Pair]] = defaultdict(list)
            for one, other in combinations(runs, 2):
                pair = pair_of(one, other, metric)
                if pair is not None:
                    room = room_of(metric, calibrated=is_calibrated(one, other, metric))
                    of_case[room].append(pair)
            for room, pairs in of_case.items():
                found[f"{room}{kind.instrument}/{kind.length}"].append(pairs)
                found[f"{room}any"].append(pairs)
    return {
        name: learn(cases, " on other machines")
        for name, cases in sorted(found.items())
        if sum(map(len, cases)) >= ENOUGH_PAIRS
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
