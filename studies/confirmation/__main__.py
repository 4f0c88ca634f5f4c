"""Measure sessions of ``ivhl confirm``, or report what they said."""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

from ivhl.bench.confirm import DRIFT, SESSION, WEIGHED
from ivhl.cli.confirm import confirm_cells
from ivhl.records.store import load_records
from ivhl.tracker.changes import judge_changes
from ivhl.tracker.metrics import difference_in_session, within
from ivhl.tracker.spread import SHIPPED
from ivhl.tracker.terminal import Terminal
from studies.confirmation.project import OPERATIONS, Commits, make_project

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ivhl.records.record import RunRecord

    Pairs = Sequence[tuple[RunRecord, RunRecord]]

ROOT: Final = Path(__file__).parents[2]
STORED: Final = Path(__file__).with_name("comparisons.jsonl")
PYTHON, TORCH = "3.12", "2.15.0"
KINDS: Final = ("c_s", "compute_s", "memory_s")
CASES: Final = tuple(f"planted.{name}/medium/compiled" for name in OPERATIONS)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.confirmation")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no session after this")
    parser.add_argument("--machine", default=os.uname().nodename, help="name of this machine")
    parser.add_argument("--report", action="store_true", help="print what is stored")
    options = parser.parse_args()
    if options.report and not STORED.exists():
        parser.error(f"{STORED.name} has no comparisons yet: measure some with --minutes 60")
    if options.report:
        print(report([json.loads(line) for line in STORED.read_text().splitlines()]))
        return
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
    found = confirm_cells(
        root,
        results,
        (commits.base, head),
        {(PYTHON, TORCH): CASES},
        machine,
        Terminal(stderr=True),
    )
    loaded = load_records(results)
    runs = (*loaded.records, *loaded.replaced)
    judged = [one.case for one in found if one.rounds]
    # The first runs are all that there is before ``confirm``.
    pairs = {case: (_of(runs, commits.base, case)[0], _of(runs, head, case)[0]) for case in judged}
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
            "moves": moves(pairs_of(runs, (commits.base, head), one.case)),
            "calibration": calibrations(pairs_of(runs, (commits.base, head), one.case)),
            "load": round(load, 1),
            "session_s": round(time.monotonic() - start),
        }


def pairs_of(
    runs: Sequence[RunRecord], commits: tuple[str, str], case: str
) -> list[tuple[RunRecord, RunRecord]]:
    """Return the runs of base and head of a case, round by round."""
    base, head = (_of(runs, commit, case) for commit in commits)
    return list(zip(base, head, strict=False))


def calibrations(rounds: Pairs) -> dict[str, list[float]]:
    """Return by kind of fixed work, for each round, the logarithm of its seconds: head over base."""
    both = [(one.calibration, other.calibration) for one, other in rounds]
    return {
        kind: [
            round(math.log(median(getattr(other, kind)) / median(getattr(one, kind))), 5)
            for one, other in both
            if one is not None and other is not None
        ]
        for kind in KINDS
    }


def moves(rounds: Pairs) -> dict[str, list[tuple[float, float, float]]]:
    """Return by quantity, for each round: logarithm of head over base, and the errors of both."""
    return {
        metric: [
            (round(move, 5), round(within(one, metric), 5), round(within(other, metric), 5))
            for one, other in rounds
            if (move := difference_in_session(one, other, metric)) is not None
        ]
        for metric in WEIGHED
    }


def _of(runs: Iterable[RunRecord], commit: str, case: str) -> list[RunRecord]:
    """Return the runs of a case at a commit, oldest first."""
    mine = [r for r in runs if r.commit == commit and f"{r.workload}/{r.size}/{r.variant}" == case]
    return sorted(mine, key=lambda record: record.recorded_at)


def report(rows: list[dict[str, Any]]) -> str:
    """Return Markdown: what was said of what was planted, and what runs of a session differ by."""
    lines = [
        "| head | comparisons | one pair of runs | after `confirm` | rounds |",
        "|---|---|---|---|---|",
    ]
    names = {"same": "the same code", "more": "5 % more work"}
    for planted, name in names.items():
        mine = [row for row in rows if row["planted"] == planted]
        counts = (Counter(str(row[f]) for row in mine) for f in ("before", "verdict", "rounds"))
        texts = (", ".join(f"{n} {what}" for what, n in sorted(c.items())) for c in counts)
        lines.append(f"| {name} | {len(mine)} | {' | '.join(texts)} |")
    lines += [
        "",
        "Two runs of the same code in a session differ by (standard deviation of the logarithm):",
        "",
        "| quantity | pairs of runs | seen | of what its processes show | of what is expected |",
        "|---|---|---|---|---|",
    ]
    for metric in WEIGHED:
        seen = [
            (move, math.hypot(*errors))
            for row in rows
            if row["planted"] == "same"
            for move, *errors in row["moves"][metric]
        ]
        if not seen:
            continue
        scales = [
            [move for move, _ in seen],
            [move / error for move, error in seen if error],
            [move / math.hypot(SESSION, DRIFT[metric] * error) for move, error in seen],
        ]
        whole, of_within, of_prior = (math.sqrt(fmean(x * x for x in one)) for one in scales)
        line = f"| {metric} | {len(seen)} | {whole:.4f} | {of_within:.2f}x | {of_prior:.2f}x |"
        lines.append(line)
    for kind in KINDS:
        found = [x for row in rows for x in row.get("calibration", {}).get(kind, ())]
        if found:
            whole = math.sqrt(fmean(x * x for x in found))
            lines.append(f"| calibration, `{kind}` | {len(found)} | {whole:.4f} | - | - |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
