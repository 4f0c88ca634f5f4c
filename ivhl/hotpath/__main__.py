"""Run a program in a block: ``python -m ivhl.hotpath [--timeline FILE] SCRIPT [ARGUMENTS]``."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from ivhl.errors import IvhlError
from ivhl.hotpath.block import auto


def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ivhl.hotpath",
        description="Run a program, compile what repeats in it, and print what that gave.",
    )
    parser.add_argument("--threshold", type=int, help="repetitions before compiling; 10")
    parser.add_argument("--timeline", type=Path, metavar="FILE", help="write a picture as SVG")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.script.is_file():
        parser.error(f"no file {options.script}")
    if options.timeline and not options.timeline.parent.is_dir():
        parser.error(f"--timeline {options.timeline}: no folder {options.timeline.parent}")
    try:
        block = auto(options.threshold)
    except IvhlError as error:
        sys.stderr.write(
            f"error: {error}\nnext: {error.hint}\n" if error.hint else f"error: {error}\n"
        )
        return error.exit_code
    sys.argv = [str(options.script), *options.arguments]
    sys.path[0] = str(options.script.resolve().parent)
    try:
        with block as report:
            runpy.run_path(str(options.script), run_name="__main__")
    finally:
        sys.stderr.write(f"{report}\n")
        if options.timeline:
            report.write_timeline(options.timeline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
