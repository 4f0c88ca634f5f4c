"""``python -m studies.planted``: measure planted changes, and keep what was said of them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from ivhl.git import current_commit
from studies.planted.project import CHANGES, make_project

ROOT: Final = Path(__file__).parents[2]
SCHEMA: Final = "ivhl.planted/1"
PYTHON, TORCH = "3.12", "2.15.0"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.planted")
    parser.add_argument("--machine", default=os.uname().nodename, help="name of this machine")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the findings as JSON")
    options = parser.parse_args()
    about: dict[str, Any] = {
        "schema": SCHEMA,
        "commit": current_commit(Path.cwd()),
        "machine": {"name": options.machine},
        "load_average": os.getloadavg()[0],
        "rows": [],
    }
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        root = Path(folder) / "planted"
        commits = make_project(root, ROOT, f"py{PYTHON}-torch{TORCH}.txt")
        for change, base, head in zip(CHANGES, commits, commits[1:], strict=False):
            row = {"change": change.name} | gate(root, base, head, options.machine)
            print(json.dumps(row), flush=True)
            about["rows"].append(row)
        listed = ivhl(root, "regressions", "--machine", options.machine)
        print(listed.stdout)
    about["regressions"] = listed.stdout.splitlines()
    if options.export:
        options.export.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def gate(root: Path, base: str, head: str, machine: str) -> dict[str, Any]:
    """Return exit code and findings of the gate for one commit, and the seconds it took."""
    began = time.monotonic()
    done = ivhl(
        root, "gate", "--measure", "--confirm", "--json", "--base", base, "--commit", head,
        "--python", PYTHON, "--torch", TORCH, "--machine", machine,
    )  # fmt: skip
    verdict = json.loads(done.stdout)
    return {
        "exit_code": done.returncode,
        "headline": verdict["headline"],
        "findings": [
            {"workload": one["workload"], "kind": one["kind"], "reason": one["reason"]}
            for one in verdict["findings"]
            if one["kind"] != "held"
        ],
        "seconds": round(time.monotonic() - began),
    }


def ivhl(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ivhl in the project."""
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "ivhl", *words],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    main()
