"""Measure sessions of ``ivhl confirm``, or report what they said."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ivhl.cli.confirm import confirm_cells
from ivhl.records.store import load_records
from ivhl.tracker.changes import judge_changes
from ivhl.tracker.spread import SHIPPED
from ivhl.tracker.terminal import Terminal
from studies.confirmation.project import OPERATIONS, Commits, make_project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.records.record import RunRecord

ROOT: Final = Path(__file__).parents[2]
STORED: Final = Path(__file__).with_name("comparisons.jsonl")
PYTHON, TORCH = "3.12", "2.15.0"
CASES: Final = tuple(f"planted.{name}/medium/compiled" for name in OPERATIONS)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.confirmation")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no session after this")
    parser.add_argument("--machine", default=os.uname().nodename, help="name of this machine")
    parser.add_argument("--report", action="store_true", help="print what is stored")
    options = parser.parse_args()
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
    pairs = {case: (_first(runs, commits.base, case), _first(runs, head, case)) for case in judged}
    before = judge_changes(pairs, SHIPPED)
    for one in found:
        yield {
            "planted": planted,
            "session": number,
            "case": one.case,
            "before": before[one.case].kind if one.case in before else None,
            "verdict": one.verdict,
            "rounds": one.rounds,
            "text": one.text,
            "load": round(load, 1),
            "session_s": round(time.monotonic() - start),
        }


def _first(runs: tuple[RunRecord, ...], commit: str, case: str) -> RunRecord:
    """Return the first run of a case at a commit: all that there is before ``confirm``."""
    return min(
        (r for r in runs if r.commit == commit and f"{r.workload}/{r.size}/{r.variant}" == case),
        key=lambda record: record.recorded_at,
    )


def report(rows: list[dict[str, object]]) -> str:
    """Return a Markdown table: what was planted, what one pair of runs said, and ``confirm``."""
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
    return "\n".join(lines)


if __name__ == "__main__":
    main()
