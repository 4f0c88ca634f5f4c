"""Make a long history out of the committed records, and measure what the views cost on it.

``python -m studies.scale DIR --records 65000`` prints CPU seconds of each step, of this process or
of the command. docs/regressions.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ivhl.tracker.index import index_file, open_index

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
CELLS: Final = tuple(
    (f"3.{minor}", f"2.{torch}.0") for minor in (12, 13) for torch in range(3, 16)
)
CASES: Final = 80
COMMANDS: Final = (("compat",), ("regressions",), ("compare", "2.6.0", "2.15.0"))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.scale")
    parser.add_argument("folder", type=Path, help="an empty folder for the records")
    parser.add_argument("--records", type=int, default=65_000)
    options = parser.parse_args()
    folder: Path = options.folder
    cases = _cases()
    per_commit = len(CELLS) * len(cases)
    commits = options.records // per_commit
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    results = folder / "results"
    for n in range(commits):
        write_commit(results, n, cases)
    print(f"{commits * per_commit} records of {len(cases)} cases in {len(CELLS)} cells")
    with _cpu("first index"):
        open_index(results)
    write_commit(results, commits, cases)
    with _cpu(f"one commit more, {per_commit} records"):
        open_index(results)
    print(f"size of the index: {index_file(results).stat().st_size / 1e6:.0f} MB")
    for words in COMMANDS:
        command = [sys.executable, "-m", "ivhl", *words, "--results", str(results)]
        for how in ("first", "again"):
            with _cpu(f"ivhl {' '.join(words)}, {how}", children=True):
                subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def write_commit(results: Path, number: int, cases: list[dict[str, Any]]) -> None:
    """Write the records of one commit in every cell; speedups vary by 3 %."""
    draw = random.Random(number)  # noqa: S311  (noise)
    day = 86_400 * number
    at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(1_700_000_000 + day))
    for python, torch in CELLS:
        cell = f"py{python}-torch{torch}"
        path = results / "scale" / "records" / f"{number:08x}-{cell}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = []
        for case in cases:
            record = case | {"commit": f"{number:08x}{0:032x}", "recorded_at": at}
            record["sources"] = f"{number:064x}"
            record["cell"] = {
                "id": cell, "python": python, "torch": torch, "lock_sha256": f"{0:064x}"
            }  # fmt: skip
            record["machine"] = case["machine"] | {"name": "scale"}
            if speedup := case["speedup"]:
                by = draw.gauss(1, 0.03)
                moved = {name: speedup[name] * by for name in ("value", "low", "high")}
                record["speedup"] = speedup | moved
            lines.append(json.dumps(record, sort_keys=True, separators=(",", ":")))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cases() -> list[dict[str, Any]]:
    """Return a committed record of each of ``CASES`` cases."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for path in sorted((ROOT / "results").glob("*/records/*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            found.setdefault((record["workload"], record["size"], record["variant"]), record)
    return [found[case] for case in sorted(found)][:CASES]


@contextmanager
def _cpu(what: str, *, children: bool = False) -> Iterator[None]:
    who = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
    before = resource.getrusage(who)
    yield
    after = resource.getrusage(who)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what}: {seconds:.2f} CPU s", flush=True)


if __name__ == "__main__":
    main()
