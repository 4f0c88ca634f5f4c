"""Make a project that has defects of releases as cases, and ask ``ivhl blame`` for their causes."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from ivhl.git import clone_at, find_commit

ROOT: Final = Path(__file__).parents[2]
BENCHMARKS: Final = Path(__file__).parent / "benchmarks"
# Name on the command line to the case.
CASES: Final = {
    "additions": "ops.lost_additions/small/compiled",
    "gradient": "ops.gp_gradient/small/stencil-dynamic",
    "roll": "ops.long_roll/small/dynamic",
}


def main() -> int:
    """Clone this repository, add the benchmarks, and run ``ivhl blame`` there."""
    parser = argparse.ArgumentParser(prog="python -m studies.defects")
    parser.add_argument("folder", type=Path, help="folder for the project, made if it is new")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--torch", default="2.6.0", help="release that is wrong")
    parser.add_argument("--good", default="2.15.0", help="release that is right")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if not folder.exists():
        clone_at(ROOT, find_commit(ROOT, "HEAD"), folder)
        for one in BENCHMARKS.glob("[!_]*"):
            shutil.copytree(one, folder / "benchmarks" / one.name)
    command = [
        *(sys.executable, "-m", "ivhl", "blame", CASES[options.case], "--python", "3.12"),
        *("--torch", options.torch, "--good", options.good, "--for", "wrong"),
    ]
    # This checkout's ivhl, and not that of the clone.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    return subprocess.run(command, cwd=folder, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
