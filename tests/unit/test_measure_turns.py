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

# Does what it is told, line by line, and answers each when it is done.
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
        assert self.hears() == "ready"

    def hears(self) -> str:
        """Return what it says next."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def told(self, what: str) -> None:
        """Tell it what to do."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def is_silent(self) -> bool:
        """Say whether it does not answer for a while."""
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


def test_only_one_has_the_machine_and_waits_for_who_gets_ready(
    pair: tuple[Worker, Worker],
) -> None:
    one, other = pair
    one.told("take")
    assert one.is_silent()
    other.told("take")
    assert one.hears() == "take"
    assert other.is_silent()
    # Who has been timed does not go on before who waits for it.
    one.told("share")
    assert other.hears() == "take"
    assert one.is_silent()
    other.told("share")
    assert other.hears() == "share"
    assert one.hears() == "share"


def test_who_ends_without_a_word_lets_the_others_go_on(pair: tuple[Worker, Worker]) -> None:
    one, other = pair
    one.told("take")
    other.process.kill()
    assert one.hears() == "take"


def test_who_is_alone_waits_for_nobody(tmp_path: Path) -> None:
    turns = Turns("")
    turns.take()
    turns.share()
    Turns(str(tmp_path / "turns")).take()
