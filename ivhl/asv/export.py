"""asv's benchmarks as a child process: what they are, and what each says about given records.

asv would import them in a cell, after the records were made. Here nothing is measured, so any
Python will do; it is a process of its own because benchmarks are imported by name, once.
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
from ivhl.measure.settings import VARIABLE, Settings, write_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_S = 600
_SAID = 5


@dataclass(frozen=True, slots=True)
class Suite:
    """What asv's benchmarks are, and what they say.

    Attributes:
        benchmarks: As asv's discovery describes them.
        values: For each of the cells asked about, benchmark to the value of each parameter.
    """

    benchmarks: list[dict[str, Any]]
    values: list[dict[str, list[Any]]]


def ask_suite(settings: Settings, cells: Sequence[dict[str, Any]]) -> Suite:
    """Return the benchmarks, and their values.

    Args:
        settings: As the cells of a run would read them; the device decides which cases there are.
        cells: What ``setup_cache`` would return for each: see ``ivhl.measure.suite.Values``.

    Raises:
        ResultsError: If they do not import.
    """
    with tempfile.TemporaryDirectory(prefix="ivhl-import-") as name:
        here = Path(name)
        write_settings(here / "settings.json", settings)
        (here / "cells.json").write_text(json.dumps(list(cells)), encoding="utf-8")
        # The workloads of the project need not be installed where ivhl is.
        paths = (settings.root, os.environ.get("PYTHONPATH"))
        environment = os.environ | {
            VARIABLE: str(here / "settings.json"),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        command = [sys.executable, "-m", "ivhl.asv.export", str(SUITE), str(here)]
        try:
            done = subprocess.run(
                command,
                cwd=here,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_LONGEST_S,
            )
        except subprocess.TimeoutExpired:
            raise ResultsError(
                f"{settings.workloads}: the benchmarks were not read within {_LONGEST_S} s"
            ) from None
        if done.returncode:
            last = " | ".join(done.stderr.strip().splitlines()[-_SAID:])
            raise ResultsError(
                f"{settings.workloads}: the benchmarks do not import: {last}",
                hint="the records are taken; correct the benchmarks and import again for asv's "
                "graphs",
            )
        answer = json.loads((here / "answer.json").read_text(encoding="utf-8"))
    return Suite(answer["benchmarks"], answer["values"])


def main(folder: str, here: str) -> None:
    """Write the answer for ``ask_suite`` into the folder ``here``."""
    from asv_runner.discovery import (  # noqa: PLC0415  (only the child needs it)
        disc_benchmarks,
        list_benchmarks,
    )

    with Path(here, "list.json").open("w", encoding="utf-8") as file:
        list_benchmarks(folder, file)
    cells = json.loads(Path(here, "cells.json").read_text(encoding="utf-8"))
    found = list(disc_benchmarks(folder))
    # What a failed case prints is for asv's log, and there is none here.
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
    except Exception:  # noqa: BLE001  (whatever it raises, asv has no value then)
        return None


if __name__ == "__main__":
    main(*sys.argv[1:])
