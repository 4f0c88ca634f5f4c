"""Measure sessions of ``ivhl gate --confirm``; append what they said to ``comparisons.jsonl``."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ivhl.bench.confirm import confirm
from ivhl.bench.experiment import Runs
from ivhl.bench.experiment.evidence import WEIGHED
from ivhl.bench.request import Request
from ivhl.tracker.changes.kinds import judge_changes
from ivhl.tracker.store.metrics import differences_in_turns
from ivhl.tracker.store.spread import SHIPPED
from ivhl.tracker.terminal import Terminal
from studies.confirmation.project import OPERATIONS, Commits, make_project
from studies.confirmation.report import STORED
from studies.stored import load_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ivhl.records.record import RunRecord

    Pairs = Sequence[tuple[RunRecord, RunRecord]]

ROOT: Final = Path(__file__).parents[2]
PYTHON, TORCH = "3.12", "2.15.0"
CASES: Final = tuple(f"planted.{name}/medium/compiled" for name in OPERATIONS)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.confirmation")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no session after this")
    parser.add_argument("--machine", default=os.uname().nodename, help="name of this machine")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        root = Path(folder) / "planted"
        commits = make_project(root, ROOT, f"py{PYTHON}-torch{TORCH}.txt")
        number = 0
        while time.monotonic() < end:
            planted = ("same", "more")[number % 2]
            for row in session(root, commits, planted, number, options.machine):
                with STORED.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            number += 1


def session(
    root: Path, commits: Commits, planted: str, number: int, machine: str
) -> Iterator[dict[str, object]]:
    """Confirm all cases once; yield a row for each: what was planted, and what was said."""
    results = root / "results" / str(number)
    results.mkdir(parents=True)
    head = getattr(commits, planted)
    load, start = os.getloadavg()[0], time.monotonic()
    began = datetime.now(UTC).isoformat(timespec="seconds")
    request = Request(root=root, python=PYTHON, machine=machine, results=results)
    runs = Runs(request, Terminal(stderr=True))
    found = confirm(runs, (commits.base, head), {(PYTHON, TORCH): CASES})
    loaded = load_records(results)
    every = (*loaded.records, *loaded.replaced)
    judged = [one.case for one in found if one.rounds]
    # The first runs are all that there is before ``confirm``.
    pairs = {
        case: (_of(every, commits.base, case)[0], _of(every, head, case)[0]) for case in judged
    }
    before = judge_changes(pairs, SHIPPED)
    for one in found:
        yield {
            "planted": planted,
            "session": began,
            "case": one.case,
            "before": before[one.case].kind if one.case in before else None,
            "verdict": one.verdict,
            "rounds": one.rounds,
            "text": one.text,
            "moves": moves(pairs_of(every, (commits.base, head), one.case)),
            "load": round(load, 1),
            "session_s": round(time.monotonic() - start),
        }


def pairs_of(
    runs: Sequence[RunRecord], commits: tuple[str, str], case: str
) -> list[tuple[RunRecord, RunRecord]]:
    """Return the runs of base and head of a case, round by round."""
    base, head = (_of(runs, commit, case) for commit in commits)
    return list(zip(base, head, strict=False))


def moves(rounds: Pairs) -> dict[str, list[list[float]]]:
    """Return by quantity, for each round: logarithm of head over base of each pair of processes."""
    return {
        metric: [
            [round(move, 5) for move in differences_in_turns(one, other, metric)]
            for one, other in rounds
        ]
        for metric in WEIGHED
    }


def _of(runs: Iterable[RunRecord], commit: str, case: str) -> list[RunRecord]:
    """Return the runs of a case at a commit, oldest first."""
    mine = [r for r in runs if r.commit == commit and f"{r.workload}/{r.size}/{r.variant}" == case]
    return sorted(mine, key=lambda record: record.recorded_at)


if __name__ == "__main__":
    main()
