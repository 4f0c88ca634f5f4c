"""``python -m studies.peers``: compare with other libraries, print a table, and export it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.errors import IvhlError, UnknownNameError
from ivhl.machine.memory import memory_limit
from ivhl.measure.run import this_cell
from ivhl.workload import check_memory, select_cases
from studies.peers.suite import SUITES
from studies.roofline import check_export, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from studies.peers.suite import PeerComparison

# One thread for every library. Each reads its variable when it is loaded.
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "PYFFTW_NUM_THREADS",
)
# By default KeOps compiles with -O3 only. Inductor also uses these; with them KeOps takes half the
# time.
KEOPS_FLAGS = "-march=native -ffast-math"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; print an error as a message."""
    arguments = parser().parse_args(argv)
    try:
        chosen = choose(arguments)
        if arguments.export:
            check_export(Path(arguments.export))
        this_cell()  # raises an error with a hint if torch is missing
        set_environment()
        # Imported only now: torch reads the environment when it is imported.
        from studies.peers.report import report  # noqa: PLC0415

        report(
            arguments.suite,
            chosen,
            machine=arguments.machine,
            quick=arguments.quick,
            path=Path(arguments.export) if arguments.export else None,
        )
    except IvhlError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"next: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(prog="python -m studies.peers", description=__doc__)
    p.add_argument("suite", nargs="?", default="ops", help=f"one of: {', '.join(SUITES)}")
    p.add_argument("--size", action="append", metavar="NAME", help="repeatable")
    p.add_argument("--operation", action="append", default=[], metavar="NAME", help="repeatable")
    p.add_argument("--export", metavar="FILE", help="write all results as JSON")
    p.add_argument("--quick", action="store_true", help="few samples, wide intervals")
    p.add_argument("--machine", default=os.uname().nodename, metavar="NAME")
    return p


def choose(arguments: argparse.Namespace) -> list[tuple[PeerComparison, str]]:
    """Return the requested comparisons, each with a size.

    Raises:
        UnknownNameError: If the name of a suite, operation or size is unknown.
        SpecError: If a comparison needs more memory than the machine has.
    """
    if arguments.suite not in SUITES:
        raise UnknownNameError("suite of peers", arguments.suite, SUITES)
    suite = SUITES[arguments.suite]
    comparisons = {c.workload.name: c for c in suite.comparisons}
    workloads = [c.workload for c in comparisons.values()]
    names = [name for text in arguments.operation for name in named(text, workloads)]
    chosen = []
    for size in dict.fromkeys(arguments.size or suite.sizes):
        cases = select_cases(workloads, names=names, size=size)
        check_memory(cases, memory_limit())
        chosen += [(comparisons[n], size) for n in dict.fromkeys(c.workload.name for c in cases)]
    return chosen


def set_environment() -> None:
    """Set one thread for every library, and the flags of KeOps unless they are set."""
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    os.environ.setdefault("CXXFLAGS", KEOPS_FLAGS)
    os.environ.setdefault("PYKEOPS_VERBOSE", "0")


if __name__ == "__main__":
    sys.exit(main())
