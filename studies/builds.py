"""Compare two builds of one Python in turns, since two sessions of a machine differ by more.

``python -m studies.builds DIR --python 3.13 --second DIR13/bin`` makes two clones in ``DIR``.
Each finds the interpreter in the folder that is named, or else in ``PATH``. Both measure the same
cases, one after the other, round by round. The table has the second build over the first. With
``--second-python 3.14t`` the second one is free-threaded.

Where both are the same interpreter, the clones are two environments of one lock. A second table then
says how often ``ivhl attribute`` would have found an effect, where there is none.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING, Final

from ivhl.bench.experiment.evidence import (
    difference_in_session,
    expected_noise,
    mean_of_rounds,
)
from ivhl.git import clone_at, find_commit
from ivhl.tracker.store.metrics import WORDS, measured, student
from studies.stored import load_records
from studies.tables.layout import markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.metrics import Metric

ROOT: Final = Path(__file__).parents[1]
# Calls of some microseconds, of which Python is a part that shows.
CASES: Final = ("ops.intensity", "ops.mera_layer", "ops.normalize_field", "ops.rnn_step_gru")
ROUNDS_OF_ATTRIBUTE: Final = (2, 3, 4)
SHOWN: Final[tuple[Metric, ...]] = ("compiled", "eager", "speedup")
_NORMAL_95: Final = NormalDist().inv_cdf(0.975)


def rounds_of(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Return the records of each round, in which every case was run once."""
    by_case: dict[str, list[RunRecord]] = {}
    for record in sorted(records, key=lambda one: one.recorded_at):
        by_case.setdefault(record.workload, []).append(record)
    return [list(found) for found in zip(*by_case.values(), strict=False)]


def table(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> list[str]:
    """Return the ratios of two builds, by the rounds of both."""
    rows = []
    for metric in SHOWN:
        moves = []
        for one, other in zip(rounds_of(first), rounds_of(second), strict=False):
            values = [[measured(record, metric) for record in side] for side in (one, other)]
            moves.append(
                fmean(math.log(b.value / a.value) for a, b in zip(*values, strict=True) if a and b)
            )
        middle = fmean(moves)
        error = stdev(moves) / math.sqrt(len(moves))
        reach = student(_NORMAL_95, len(moves) - 1) * error
        low, value, high = (math.exp(middle + n * reach) for n in (-1, 0, 1))
        rows.append([WORDS[metric], str(len(moves)), f"{value:.2f}x [{low:.2f}, {high:.2f}]"])
    return markdown(["", "rounds", "second over first"], rows)


def effects_found(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> list[str]:
    """Return how often ``ivhl attribute`` finds an effect, by rounds one after another."""
    rows = []
    cases = list(zip(rounds_of(first), rounds_of(second), strict=False))
    for metric in SHOWN:
        row = [WORDS[metric]]
        for n_rounds in ROUNDS_OF_ATTRIBUTE:
            found = asked = 0
            for number in range(len(cases[0][0])):
                rounds = [
                    (move, expected_noise(metric, (one[number], other[number])))
                    for one, other in cases
                    if (move := difference_in_session(one[number], other[number], metric))
                    is not None
                ]
                for begin in range(len(rounds) - n_rounds + 1):
                    moves, noises = zip(*rounds[begin : begin + n_rounds], strict=True)
                    middle, half = mean_of_rounds(moves, noises, _NORMAL_95)
                    asked += 1
                    found += abs(middle) > half
            row.append(f"{found} of {asked}")
        rows.append(row)
    return markdown(["effects found", *(f"{n} rounds" for n in ROUNDS_OF_ATTRIBUTE)], rows)


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.builds", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the two clones go, made if they are new")
    parser.add_argument("--python", default="3.13")
    parser.add_argument("--torch", default="2.15.0")
    parser.add_argument("--first", default="", help="folder of the first interpreter")
    parser.add_argument("--second", default="", help="folder of the second one")
    parser.add_argument("--second-python", help="if it is another, such as 3.14t")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    sides = {
        "first": (options.python, options.first),
        "second": (options.second_python or options.python, options.second),
    }
    for name in sides:
        if not (options.folder / name).exists():
            clone_at(ROOT, find_commit(ROOT, "HEAD"), options.folder / name)
    command = [
        *(sys.executable, "-m", "ivhl", "bench"),
        *("--torch", options.torch, "--suite", "core", "--force", "--no-publish"),
        *("--machine", "builds", *(part for case in CASES for part in ("--workload", case))),
    ]
    for _ in range(options.rounds):
        for name, (python, where) in sides.items():
            path = os.pathsep.join(filter(None, (where, os.environ["PATH"])))
            folder = options.folder / name
            # Python finds the clone's ivhl in its working folder first.
            subprocess.run(
                [*command, "--python", python],
                cwd=folder,
                check=True,
                env=os.environ | {"PATH": path},
            )
    loaded = [load_records(options.folder / name / "results") for name in sides]
    first, second = (
        [one for one in (*side.records, *side.replaced) if one.machine.name == "builds"]
        for side in loaded
    )
    print("\n".join(table(first, second)))
    if sides["first"] == sides["second"]:
        print("\n" + "\n".join(effects_found(first, second)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
