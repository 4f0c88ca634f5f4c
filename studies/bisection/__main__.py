"""Make a project with a planted commit, and search for it."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

from studies.bisection.project import KINDS, make_project

ROOT: Final = Path(__file__).parents[2]


def main() -> int:
    """Make the project, run ``ivhl bisect`` in it, and say whether it found what was planted."""
    parser = argparse.ArgumentParser(prog="python -m studies.bisection")
    parser.add_argument("folder", type=Path, help="new folder for the project")
    parser.add_argument("--kind", choices=KINDS, default="slowdown", help="what is planted")
    parser.add_argument("--commits", type=int, default=64, help="commits behind the first")
    parser.add_argument("--planted", type=int, help="which one is planted (default: drawn)")
    parser.add_argument("--percent", type=int, default=30, help="how much slower, or how often")
    parser.add_argument("--machine", default=os.uname().nodename, help="name of this machine")
    parser.add_argument("--torch", default="2.15.0", help="PyTorch release")
    options = parser.parse_args()
    planted = options.planted or random.SystemRandom().randint(1, options.commits)
    root = options.folder.resolve()
    hashes = make_project(
        root, ROOT, options.kind, options.commits, planted, percent=options.percent
    )
    sought = {"unbuildable": "slowdown", "flaky": "failure"}.get(options.kind, options.kind)
    command = [
        *(sys.executable, "-m", "ivhl", "bisect", hashes[0], hashes[-1]),
        *("--case", "planted.work", "--for", sought, "--python", "3.12"),
        *("--torch", options.torch, "--machine", options.machine, "--json"),
    ]
    done = subprocess.run(
        command,
        cwd=root,
        check=False,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        return done.returncode
    found = json.loads(done.stdout)
    print(json.dumps(found, indent=1))
    held = hashes.index(found["before"]) < planted <= hashes.index(found["after"])
    print(f"planted: number {planted}, {hashes[planted][:8]}: {'found' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
