"""Keep the files of a first compile in this cell, so that its first run finds them.

``python -m ivhl.measure.warm`` in a cell whose project need not be installed yet. The driving
side starts one per new cell, all at once: most of it is one thread that imports and precompiles.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from ivhl.measure.lanes import keep_throwaway, take_throwaway
from ivhl.measure.launcher import launcher_of
from ivhl.measure.settings import CELL_VARIABLE, read_settings
from ivhl.measure.shared import lacks_bytecode
from ivhl.records.record import Cell


def main() -> int:
    """Compile the throwaway in this cell and keep it."""
    run = read_settings().run_in(Cell(**json.loads(os.environ[CELL_VARIABLE])), "")
    Path(run.scratch).mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(
            prefix="warm-", dir=run.scratch, ignore_cleanup_errors=True
        ) as folder,
        closing(launcher_of(run, Path(folder) / "lane-0")) as launcher,
    ):
        if take_throwaway(run, launcher):
            return 0
        return 0 if keep_throwaway(run, launcher, new=lacks_bytecode()) else 1


if __name__ == "__main__":
    sys.exit(main())
