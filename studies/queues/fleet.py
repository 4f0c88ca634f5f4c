"""Four workers on two machines, restarted as a service manager would, and what they recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg

if TYPE_CHECKING:
    from studies.queues.database import Database, Link

WORKERS: Final = {f"worker-{i}": f"machine-{i // 2}" for i in range(4)}
LEASE_S: Final = 4.0
_FAKETIME: Final = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


@dataclass
class Fleet:
    """The workers of one fault on one library."""

    library: str
    database: Database
    folder: Path
    ms: float
    query: bytes  # the cases of the queue and their states
    link: Link | None = None
    clocks: dict[str, str] = field(default_factory=dict)  # worker -> how far its clock is off
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    faults: int = 0
    left: int = 0  # workers that ended by themselves, or did not end on SIGTERM

    def start(self, name: str) -> None:
        """Start a worker."""
        url = self.database.url(self.link.port if self.link else 0)
        place = (str(self.folder), name, WORKERS[name], str(self.ms), str(LEASE_S))
        environment = dict(os.environ)
        if name in self.clocks:
            environment |= {"LD_PRELOAD": _FAKETIME, "FAKETIME": self.clocks[name]}
            environment["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
        with (self.folder / f"{name}.err").open("ab") as errors:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "studies.queues.worker", self.library, url, *place],
                cwd=Path(__file__).parents[2],
                env=environment,
                stdout=errors,
                stderr=errors,
            )

    def start_all(self) -> None:
        """Start all workers and wait until they have imported their library."""
        for name in WORKERS:
            self.start(name)
        ready = [self.folder / f"{name}.ready" for name in WORKERS]
        for _ in range(600):
            if all(map(Path.exists, ready)):
                return
            time.sleep(0.1)
        message = f"{self.folder}: a worker does not start"
        raise RuntimeError(message)

    def wait(self, seconds: float = 0.0) -> None:
        """Let time pass; restart who died, and count who left without being killed."""
        until = time.monotonic() + seconds
        while True:
            for name, process in [*self.running.items()]:
                if process.poll() is not None:
                    self.left += process.returncode != -signal.SIGKILL
                    self.start(name)
            if time.monotonic() >= until:
                return
            time.sleep(0.02)

    def measuring(self, seconds: float = 10.0) -> str | None:
        """Return a worker that measures, on each machine in turn, or none after a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for machine in sorted(set(WORKERS.values()), reverse=bool(self.faults % 2)):
                file = self.folder / f"{machine}.lock"
                pid = file.read_text() if file.is_file() else ""
                for name, process in self.running.items():
                    if str(process.pid) == pid:
                        return name
            self.wait(0.005)
        return None

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a worker."""
        self.running[name].send_signal(number)

    def cases(self, *states: str) -> set[str]:
        """Return the cases of the queue in some states: todo, doing, failed."""
        with self.database.connect() as connection:
            return {case for case, state in connection.execute(self.query) if state in states}

    def drain(self, seconds: float) -> None:
        """Wait until no job is unfinished, at most some seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(psycopg.OperationalError):  # a fault may have ended the database
                if not self.cases("todo", "doing"):
                    return
            self.wait(0.1)

    def end(self, name: str) -> None:
        """End a worker with SIGTERM, which lets it finish; count one that does not end well."""
        process = self.running.pop(name)
        process.terminate()
        try:
            self.left += process.wait(20) != 0
        except subprocess.TimeoutExpired:
            print(f"{name} does not end on SIGTERM", file=sys.stderr)
            process.kill()
            process.wait()
            self.left += 1

    def end_all(self) -> None:
        """End all workers."""
        for name in [*self.running]:
            self.end(name)

    def records(self) -> list[dict[str, Any]]:
        """Return the records of all workers."""
        files = sorted(self.folder.glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def import_all(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the newest try of each case, as an import would."""
    newest: dict[str, int] = {}
    for record in records:
        newest[record["case"]] = max(record["attempt"], newest.get(record["case"], 0))
    return [record for record in records if record["attempt"] == newest[record["case"]]]


def overlapping(records: list[dict[str, Any]]) -> int:
    """Count measurements that began on a machine before the one before had ended."""
    spans = defaultdict(list)
    for record in records:
        spans[record["machine"]].append((record["start"], record["end"]))
    return sum(
        later[0] < earlier[1]
        for machine in spans.values()
        for earlier, later in zip(sorted(machine), sorted(machine)[1:], strict=False)
    )


def cpu_ms(records: list[dict[str, Any]]) -> float:
    """Return the CPU milliseconds of a worker from the end of a job to the next, without imports."""
    processes: dict[int, list[float]] = defaultdict(list)
    for record in records:
        processes[record["pid"]].append(record["cpu"])
    spent = sum(max(values) - min(values) for values in processes.values())
    return 1e3 * spent / max(1, sum(len(values) - 1 for values in processes.values()))
