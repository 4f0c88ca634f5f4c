"""``python -m studies.tables``: write the blocks of the pages, check them, or print one table."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING

from ivhl.matrix.project import find_root
from studies.tables.blocks import OWN, TABLES, BlockError, make, stale, write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a block is stale and ``--check`` is given."""
    parser = argparse.ArgumentParser(prog="python -m studies.tables", description=__doc__)
    parser.add_argument("table", nargs="?", choices=sorted(TABLES), help="print this table")
    parser.add_argument("--check", action="store_true", help="change nothing; name stale blocks")
    arguments = parser.parse_args(argv)
    root = find_root()
    if arguments.table is not None:
        print("\n".join(make(shlex.join([*OWN, arguments.table]), root)[1:-1]))
        return 0
    try:
        return _check(root) if arguments.check else _write(root)
    except BlockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _check(root: Path) -> int:
    found = stale(root)
    for page, block, _ in found:
        place = f"{page.relative_to(root)}:{block.line}"
        print(f"{place}: not what {block.command!r} makes; next: {shlex.join(OWN)}")
    return bool(found)


def _write(root: Path) -> int:
    # From the last one of a page on: the lines of those before it stay where they are.
    for page, block, made in reversed(stale(root)):
        write(page, block, made)
        print(f"{page.relative_to(root)}:{block.line}: {block.command}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
