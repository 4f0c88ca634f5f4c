"""Processes of a case prepare in parallel and time one at a time."""

from __future__ import annotations

import select
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from ivhl.measure.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Runs one command per line, and prints it when it is done.
WORKER = """
import sys
from ivhl.measure.turns import Turns
turns = Turns(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    getattr(turns, line.strip())()
    print(line.strip(), flush=True)
"""


class Worker:
    """One process that takes turns."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.next_line() == "ready"

    def next_line(self) -> str:
        """Return the next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, what: str) -> None:
        """Send a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def is_silent(self) -> bool:
        """Return whether it prints nothing for a while."""
        assert self.process.stdout is not None
        return not select.select([self.process.stdout], [], [], 0.3)[0]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Worker, Worker]]:
    path = tmp_path / "turns"
    with ExitStack() as stack:
        workers = Worker(path), Worker(path)
        for worker in workers:
            stack.enter_context(worker.process)
            stack.callback(worker.process.kill)
        yield workers


def test_one_process_times_at_a_time_after_all_have_prepared(
    pair: tuple[Worker, Worker],
) -> None:
    one, other = pair
    one.send("take")
    assert one.is_silent()
    other.send("take")
    assert one.next_line() == "take"
    assert other.is_silent()
    # The process that has timed does not continue before the one that waits.
    one.send("share")
    assert other.next_line() == "take"
    assert one.is_silent()
    other.send("share")
    assert other.next_line() == "share"
    assert one.next_line() == "share"


def test_a_process_that_dies_releases_its_turn(pair: tuple[Worker, Worker]) -> None:
    one, other = pair
    one.send("take")
    other.process.kill()
    assert one.next_line() == "take"


def test_a_single_process_does_not_wait(tmp_path: Path) -> None:
    turns = Turns("")
    turns.take()
    turns.share()
    Turns(str(tmp_path / "turns")).take()
