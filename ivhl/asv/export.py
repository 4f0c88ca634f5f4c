"""Import asv's benchmarks in a child process, and evaluate them for given records.

asv itself imports them in a cell. Nothing is measured here, so any Python works. A separate process
is needed because Python imports a module of one name only once.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ivhl.asv.configuration import SUITE
from ivhl.errors import ResultsError
from ivhl.measure.process import run_tree
from ivhl.measure.settings import VARIABLE, Settings, write_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_S = 600
_SHOWN_LINES = 5


@dataclass(frozen=True, slots=True)
class AsvBenchmarks:
    """asv's benchmarks and their values.

    Attributes:
        benchmarks: Descriptions from asv's discovery.
        values: For each cell, benchmark name to the value for each parameter.
    """

    benchmarks: list[dict[str, Any]]
    values: list[dict[str, list[Any]]]


def read_suite(settings: Settings, cells: Sequence[dict[str, Any]]) -> AsvBenchmarks:
    """Return the benchmarks, and their values in the given cells.

    Args:
        settings: Settings of a run; the cases depend on the device.
        cells: Return value of ``setup_cache`` for each cell (``ivhl.measure.suite.Values``).

    Raises:
        ResultsError: If the benchmarks do not import.
    """
    with tempfile.TemporaryDirectory(prefix="ivhl-import-") as name:
        here = Path(name)
        write_settings(here / "settings.json", settings)
        (here / "cells.json").write_text(json.dumps(list(cells)), encoding="utf-8")
        # The workloads of the project need not be installed in ivhl's environment.
        paths = (settings.root, os.environ.get("PYTHONPATH"))
        environment = os.environ | {
            VARIABLE: str(here / "settings.json"),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        command = [sys.executable, "-m", "ivhl.asv.export", str(SUITE), str(here)]
        try:
            done = run_tree(
                command,
                cwd=here,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=_LONGEST_S,
            )
        except subprocess.TimeoutExpired:
            raise ResultsError(
                f"{settings.workloads}: importing the benchmarks took more than {_LONGEST_S} s"
            ) from None
        if done.returncode:
            last = " | ".join(done.stderr.strip().splitlines()[-_SHOWN_LINES:])
            raise ResultsError(
                f"{settings.workloads}: the benchmarks do not import: {last}",
                hint="the records are imported; for asv's graphs, correct the benchmarks and "
                "import again",
            )
        answer = json.loads((here / "answer.json").read_text(encoding="utf-8"))
    return AsvBenchmarks(answer["benchmarks"], answer["values"])


def main(folder: str, here: str) -> None:
    """Write the answer for ``read_suite`` into the folder ``here``."""
    from asv_runner.discovery import (  # noqa: PLC0415  (only the child needs it)
        disc_benchmarks,
        list_benchmarks,
    )

    with Path(here, "list.json").open("w", encoding="utf-8") as file:
        list_benchmarks(folder, file)
    cells = json.loads(Path(here, "cells.json").read_text(encoding="utf-8"))
    found = list(disc_benchmarks(folder))
    # A failed case prints its failure for asv's log, which does not exist here.
    with Path(os.devnull).open("w", encoding="utf-8") as void, contextlib.redirect_stderr(void):
        values = [
            {
                one.name: [_value(one, cell, case) for case in one._params[0]]  # noqa: SLF001
                for one in found
                if list(one.param_names) == ["case"]
            }
            for cell in cells
        ]
    benchmarks = json.loads(Path(here, "list.json").read_text(encoding="utf-8"))
    answer = {"benchmarks": benchmarks, "values": values}
    Path(here, "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def _value(benchmark: Any, cell: dict[str, Any], case: str) -> Any:  # noqa: ANN401
    try:
        return benchmark.func(cell, case)
    except Exception:  # noqa: BLE001  (asv records no value for any exception)
        return None


if __name__ == "__main__":
    main(*sys.argv[1:])
