"""Run ``asv run`` as a child process, watch it, and end it with all its descendants."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.asv.configuration import write_configuration
from ivhl.errors import ResultsError
from ivhl.measure.process import ProcessTree
from ivhl.measure.settings import VARIABLE, Settings, write_settings
from ivhl.measure.suite import operation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.matrix.locks import LockState
    from ivhl.workload import Case


def log_of(root: Path) -> Path:
    """Return the file with asv's output."""
    return root / ".asv" / "asv.log"


def run_asv(
    settings: Settings,
    locks: Sequence[LockState],
    cases: Sequence[Case],
    *,
    commit: str,
    watch: Callable[[], None],
    under: Callable[[Sequence[str]], Sequence[str]],
) -> int:
    """Run asv over the cells and return its exit status: 2 means that a benchmark failed.

    Args:
        settings: Settings for the cells.
        locks: Locks of the cells.
        cases: Cases to measure in each cell.
        commit: Full hash.
        watch: Called a few times a second, and once at the end.
        under: See ``ivhl.bench.main.Executor.command``.

    Raises:
        SpecError: See ``load_configuration``.
        ResultsError: If a signal ended asv.
    """
    root = Path(settings.root)
    home = root / ".asv"
    Path(settings.events).write_text("", encoding="utf-8")
    configuration = write_configuration(root, settings, locks)
    write_settings(home / "settings.json", settings)
    environment = os.environ | {VARIABLE: str(home / "settings.json"), "NO_COLOR": "1"}
    command = [
        sys.executable, "-m", "asv", "run", "--config", str(configuration),
        "--machine", settings.machine.name,
        # asv starts a process for each value that it reads: a verdict alone has one of each case.
        "--bench", benchmark_regex(cases, r"\w+" if settings.effort.is_timed else "failed"),
        "--show-stderr", f"{commit}^!",
    ]  # fmt: skip
    with (
        log_of(root).open("ab") as sink,
        # Not isolated: it observes what else runs on the machine.
        ProcessTree(
            under(command),
            isolated=False,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        ) as tree,
    ):
        try:
            while tree.wait(0.2) is None:
                watch()
            watch()
        finally:
            if tree.process.returncode is None:  # as Ctrl-C: asv keeps what it has
                tree.process.send_signal(signal.SIGINT)
                tree.wait(5)
    status = tree.end()
    if status < 0:
        raise ResultsError(
            f"signal {-status} ended asv; the records written so far are kept",
            hint="run the same command again: it continues where it stopped",
        )
    return status


def benchmark_regex(cases: Sequence[Case], metrics: str = r"\w+") -> str:
    """Return a regular expression for these cases, and for what ``metrics`` matches of each."""
    names = "|".join(
        re.escape(f"{operation_of(case.workload.name, case.workload).name}.")
        + rf"track_{metrics}\({re.escape(f'{case.size!r}, {case.variant.name!r}')}"
        for case in cases
    )
    return rf"^(?:{names})\)$"
