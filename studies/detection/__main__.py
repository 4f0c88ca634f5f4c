"""``python -m studies.detection SHARED_DIR``: score the detector of steps."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ivhl.git import current_commit
from ivhl.tracker.detection.changepoints import detect

from . import generate
from .metrics import Detector
from .report import score, table
from .series import read_folder

SCHEMA = "ivhl.detection/1"


def main(argv: Sequence[str] | None = None) -> int:
    """Print one row for each metric."""
    arguments = parser().parse_args(argv)
    if arguments.fresh is None:
        suites = read_folder(arguments.shared / "data" / "dev")
    else:
        seed = arguments.fresh
        made = (
            generate.synth(seed),
            generate.mixed(seed),
            generate.delay(seed),
            generate.ratio(seed),
        )
        suites = {series[0].suite: series for series in made}
    if arguments.suites:
        suites = {name: suites[name] for name in arguments.suites.split(",")}
    detector = _load(arguments.detector) if arguments.detector else detect
    load = os.getloadavg()[0]
    rows = score(suites, detector, detail=arguments.detail)
    print(table(rows))
    if arguments.export:
        about = {
            "schema": SCHEMA,
            "commit": current_commit(Path.cwd()),
            "seed": arguments.fresh,
            "load_average": load,
            "rows": rows,
        }
        arguments.export.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return 0


def _load(name: str) -> Detector:
    """Return ``MODULE:FUNCTION`` as a detector; the function takes the values only."""
    module, _, function = name.partition(":")
    other = getattr(importlib.import_module(module), function)
    return lambda values, _: other(list(values))


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m studies.detection", description=__doc__)
    made.add_argument("shared", type=Path, help="folder that holds data/dev/*.json")
    made.add_argument("--fresh", type=int, metavar="SEED", help="series of our generators instead")
    made.add_argument("--suites", metavar="NAME,...", help="only these")
    made.add_argument("--detector", metavar="MODULE:FUNCTION", help="another one: f(values)")
    made.add_argument("--export", type=Path, metavar="FILE", help="write the figures as JSON")
    made.add_argument("--detail", action="store_true", help="also by family and by size")
    return made


if __name__ == "__main__":
    sys.exit(main())
