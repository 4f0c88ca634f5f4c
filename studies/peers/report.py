"""Print the table of a run, and export its contents as JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from ivhl.errors import ResultsError
from ivhl.git import current_commit
from ivhl.machine.identity import this_machine
from ivhl.measure.timing import FULL, QUICK
from studies.peers.compare import compare
from studies.peers.suite import SUITES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from studies.peers.compare import PeerRow
    from studies.peers.suite import PeerComparison

SCHEMA = "ivhl.peers/1"


def report(
    suite: str,
    chosen: Sequence[tuple[PeerComparison, str]],
    *,
    machine: str,
    quick: bool,
    path: Path | None,
) -> None:
    """Compare, print the table, and write the JSON if there is a path; also if interrupted.

    Raises:
        SpecError: If the name of the machine is not valid.
        ResultsError: If the file cannot be written.
    """
    torch.set_num_threads(1)
    about = conditions(suite, machine, quick=quick)
    print_head(about)
    rows: list[PeerRow] = []
    try:
        for comparison, size in chosen:
            print(f"{comparison.workload.name}/{size} ...", file=sys.stderr)
            rows += compare(comparison, size, schedule=QUICK if quick else FULL)
    finally:
        print_table(rows)
        if path is not None:
            export(path, about, rows)


def conditions(suite: str, machine: str, *, quick: bool) -> dict[str, Any]:
    """Return the conditions of the run.

    Raises:
        SpecError: If the name of the machine is not valid.
    """
    return {
        "suite": suite,
        "commit": current_commit(Path.cwd()),
        "machine": asdict(this_machine(machine)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "clock": "cpu",
        "quick": quick,
        "load_average": os.getloadavg()[0],
        "cxxflags": os.environ.get("CXXFLAGS", ""),
    }


def print_head(about: dict[str, Any]) -> None:
    """Print the conditions of the run."""
    machine = about["machine"]
    print(f"machine  {machine['cpu']}, {about['threads']} thread of {machine['n_cpus']}")
    versions = f"Python {about['python']}, PyTorch {about['torch']}, commit {about['commit'][:8]}"
    if about["suite"] == "ops":
        versions += f"; KeOps with {about['cxxflags'] or 'no flags'}"
    print(f"versions {versions}")
    print(f"clock    CPU time of the process; load average before {about['load_average']:.2f}")
    if SUITES[about["suite"]].note:
        print(f"note     {SUITES[about['suite']].note}")


def print_table(rows: Sequence[PeerRow]) -> None:
    """Print a line per row, and notes below."""
    have_weights = any(row.n_weights is not None for row in rows)
    table = [
        ("operation", "code", "time", "ivhl is ... as fast", "error")
        + (("weights",) if have_weights else ())
        + ("",)
    ]
    remarks: dict[str, int] = {}
    for row in rows:
        texts = [text for text in (row.reason, row.note) if text]
        marks = [f"({remarks.setdefault(text, len(remarks) + 1)})" for text in texts]
        versions = ", ".join(f"{name} {version}" for name, version in row.packages.items())
        speedup, s = "", row.speedup
        if s is not None:
            speedup = f"{s.value:.2f}x [{s.low:.2f}, {s.high:.2f}]"
        table.append(
            (
                f"{row.operation}/{row.size}",
                f"{row.name} ({versions})" if versions else row.name,
                time_of(row),
                speedup,
                "" if row.error is None else f"{row.error:.0e}",
            )
            + ((f"{row.n_weights:,}" if row.n_weights else "",) if have_weights else ())
            + (" ".join(marks),)
        )
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    last = ""
    print()
    for line in table:
        shown = ("" if line[0] == last else line[0], *line[1:])
        last = line[0]
        print("  ".join(text.ljust(w) for text, w in zip(shown, widths, strict=True)).rstrip())
    print()
    for text, number in remarks.items():
        print(f"({number}) {text}")


def time_of(row: PeerRow) -> str:
    """Return the median time of a row's calls, or its status if it has no times."""
    if row.arm is None:
        return row.status
    seconds = median(row.arm.samples_s)
    if seconds < 1e-3:  # noqa: PLR2004  (a millisecond)
        return f"{seconds * 1e6:.3g} us"
    return f"{seconds * 1e3:.3g} ms"


def export(path: Path, about: dict[str, Any], rows: Sequence[PeerRow]) -> None:
    """Write conditions and rows as JSON.

    Raises:
        ResultsError: If the file cannot be written.
    """
    data = {"schema": SCHEMA, **about, "rows": [asdict(row) for row in rows]}
    try:
        path.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"--export {path}: {error.strerror}") from error
