"""``python -m studies.founding``: repeat the founding benchmark, print its table, export it."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ivhl.errors import IvhlError, SpecError, UnknownNameError
from ivhl.git import current_commit
from ivhl.machine.identity import this_machine
from ivhl.measure.run import this_cell
from studies.founding.report import SCHEMA, load_exports, table, write_export
from studies.roofline import check_export

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; print an error as a message."""
    arguments = parser().parse_args(argv)
    try:
        if arguments.show:
            print(table(load_exports([Path(path) for path in arguments.show])))
        else:
            run(arguments)
    except IvhlError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"next: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(prog="python -m studies.founding", description=__doc__)
    p.add_argument("--molecule", action="append", metavar="NAME", help="repeatable (default: all)")
    p.add_argument(
        "--configuration", action="append", metavar="NAME", help="repeatable (default: all)"
    )
    p.add_argument("--quick", action="store_true", help="few samples, wide intervals")
    p.add_argument("--machine", default=os.uname().nodename, metavar="NAME")
    p.add_argument("--export", metavar="FILE", help="write all results as JSON")
    p.add_argument(
        "--show",
        nargs="+",
        metavar="FILE",
        help="measure nothing; print exports side by side, those of one cell joined",
    )
    return p


def run(arguments: argparse.Namespace) -> None:
    """Measure, print and export; an interrupted run prints and exports the results so far.

    Raises:
        IvhlError: If a name is unknown, a package is missing, or a file cannot be written.
    """
    cell = this_cell()
    if find_spec("ase") is None:
        raise SpecError("ase is not installed here", hint="nox -s founding")
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    # Imported only now: torch reads the environment when it is imported.
    import torch  # noqa: PLC0415

    from ivhl.measure.timing import FULL, QUICK  # noqa: PLC0415
    from studies.founding.configurations import CONFIGURATIONS  # noqa: PLC0415
    from studies.founding.protocol import MOLECULES, run_row  # noqa: PLC0415

    configurations = {c.name: c for c in CONFIGURATIONS}
    chosen = [configurations[name] for name in _chosen("configuration", arguments, configurations)]
    molecules = _chosen("molecule", arguments, MOLECULES)
    if arguments.export:
        check_export(Path(arguments.export))
    torch.set_num_threads(1)
    about: dict[str, Any] = {
        "schema": SCHEMA,
        "cell": cell.id,
        "commit": current_commit(Path.cwd()),
        "machine": asdict(this_machine(arguments.machine)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "clock": "cpu",
        "quick": arguments.quick,
        "load_average": os.getloadavg()[0],
        "rows": [],
    }
    try:
        for molecule in molecules:
            for configuration in chosen:
                print(f"{molecule}, {configuration.name} ...", file=sys.stderr, flush=True)
                row = run_row(molecule, configuration, schedule=QUICK if arguments.quick else FULL)
                about["rows"].append(asdict(row))
    finally:
        print(
            f"{about['machine']['cpu']}, 1 thread of {about['machine']['n_cpus']}; Python "
            f"{about['python']}, PyTorch {about['torch']}, commit {about['commit'][:8]}; load "
            f"average before {about['load_average']:.2f}\n"
        )
        print(table([about]))
        if arguments.export:
            write_export(Path(arguments.export), about)


def _chosen(kind: str, arguments: argparse.Namespace, known: Iterable[str]) -> list[str]:
    """Return the names given for a kind, or all names.

    Raises:
        UnknownNameError: If a given name is unknown.
    """
    names = list(known)
    given = list(dict.fromkeys(getattr(arguments, kind) or names))
    for name in given:
        if name not in names:
            raise UnknownNameError(kind, name, names)
    return given


if __name__ == "__main__":
    sys.exit(main())
