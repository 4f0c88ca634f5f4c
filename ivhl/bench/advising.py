"""Measure the parts of a model of the working tree in a cell (``ivhl surgical advise``)."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import ivhl
from ivhl.asv.cell import make_cell
from ivhl.bench.trial import install_tree
from ivhl.measure.alone import only_run_here, only_user_of_gpu
from ivhl.measure.launcher import ALLOCATOR, KEPT_VARIABLES
from ivhl.measure.process import run_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ivhl.matrix.spec import CellSpec


def advise_in_cell(
    root: Path,
    cell: CellSpec,
    arguments: Sequence[str],
    *,
    device: str,
    threads: int,
    console: Console,
) -> int:
    """Build the working tree, run the command in its cell, and return its exit code.

    Raises:
        IvhlError: If the cell cannot be made, or the project cannot be built.
    """
    with (
        only_run_here(root),
        only_user_of_gpu(device, console.print),
        tempfile.TemporaryDirectory(prefix="advise-", dir=root / ".asv") as name,
    ):
        here = Path(name)
        with console.status(f"making {cell.id}"):
            folder = make_cell(root, cell)
        with console.status("building the working tree"):
            site = install_tree(root, folder, here)
        # A copy: beside an installed ivhl lies all that is installed with it.
        shutil.copytree(
            Path(ivhl.__file__).parent,
            here / "own" / "ivhl",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        environment = kept | {
            # Last the working tree, for modules that are not installed, such as benchmarks.
            "PYTHONPATH": os.pathsep.join((str(here / "own"), str(site), str(root))),
            "GLIBC_TUNABLES": ALLOCATOR,
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(root / ".asv" / "try-cache" / f"{cell.id}-{threads}"),
        }
        sys.stdout.flush()
        command = [str(folder / "bin" / "python"), "-m", "ivhl.surgical", "advise", *arguments]
        command += ["--device", device, "--threads", str(threads)]
        return run_tree(command, cwd=root, env=environment).returncode
