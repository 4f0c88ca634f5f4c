"""Run ``asv run`` as a child process, watch it, and end it with all its descendants."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.asv.configuration import write_configuration
from ivhl.errors import ResultsError
from ivhl.measure.clocks import adopt_orphans, end_descendants, living_descendants
from ivhl.measure.settings import VARIABLE, write_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.matrix.locks import LockState
    from ivhl.measure.settings import Settings
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
) -> int:
    """Run asv over the cells and return its exit status: 2 means that a benchmark failed.

    Args:
        settings: Settings for the cells.
        locks: Locks of the cells.
        cases: Cases to measure in each cell.
        commit: Full hash.
        watch: Called a few times a second, and once at the end.

    Raises:
        SpecError: See ``load_configuration``.
        ResultsError: If a signal ended asv.
    """
    root = Path(settings.root)
    home = root / ".asv"
    Path(settings.events).write_text("", encoding="utf-8")
    configuration = write_configuration(root, settings, locks)
    write_settings(home / "settings.json", settings)
    environment = os.environ | {
        VARIABLE: str(home / "settings.json"),
        "NO_COLOR": "1",
        "IVHL_BENCH": str(os.getpid()),  # see ivhl.asv
    }
    command = [
        sys.executable, "-m", "asv", "run", "--config", str(configuration),
        "--machine", settings.machine.name, "--bench", benchmark_regex(cases),
        "--show-stderr", f"{commit}^!",
    ]  # fmt: skip
    # What measured code leaves behind must not disturb the next run. A process that has left asv's
    # session becomes a child of this one when its parent ends.
    adopt_orphans()
    there = living_descendants()
    with log_of(root).open("ab") as sink:
        process = subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            close_fds=False,  # it holds the lock of the checkout, see ivhl.bench.checks
        )
        try:
            while process.poll() is None:
                watch()
                time.sleep(0.2)
            watch()
        finally:
            if process.poll() is None or process.returncode < 0:
                end_session(process)  # its children survive it
            end_descendants(there)
    if process.returncode < 0:
        raise ResultsError(
            f"signal {-process.returncode} ended asv; the records written so far are kept",
            hint="run the same command again: it continues where it stopped",
        )
    return process.returncode


def benchmark_regex(cases: Sequence[Case]) -> str:
    """Return a regular expression for these cases; asv starts a process for each value it reads."""
    names = "|".join(re.escape(case.name) for case in cases)
    return rf"\('(?:{names})'\)$"


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End asv as Ctrl-C would, then everything that it started.

    asv gives its own children process groups of their own and leaves some behind when it is
    interrupted; they all share the session that was begun for it. Cases have sessions of their own
    and die with their parents.
    """
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(5)
    # SIGTERM first: it lets a case end with its compile workers and its folder.
    for how in (signal.SIGTERM, signal.SIGKILL):
        left = session_of(process.pid)
        for one in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, how)
        if left and how == signal.SIGTERM:
            time.sleep(1)
    process.wait()


def session_of(leader: int) -> list[int]:
    """Return every process of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(int(entry.name)) == leader:
                found.append(int(entry.name))
    return found
