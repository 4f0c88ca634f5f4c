"""Processes of a case get ready side by side, and one at a time has the machine."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from ivhl.measure.turns import Turns

if TYPE_CHECKING:
    from pathlib import Path

# Notes when it has the machine, and when it lets go of it.
WORKER = """
import sys, time
from ivhl.measure.turns import Turns
turns = Turns(sys.argv[1])
time.sleep(float(sys.argv[2]))
turns.take()
began = time.monotonic()
time.sleep(0.2)
print(began, time.monotonic())
if sys.argv[3] == "shares":
    turns.share()
    time.sleep(0.1)
"""


def workers(path: Path, *delays: tuple[float, str]) -> list[tuple[float, float]]:
    """Run workers side by side, and return when each had the machine, in order."""
    path.touch()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), str(delay), then],
            stdout=subprocess.PIPE,
            text=True,
        )
        for delay, then in delays
    ]
    told = [worker.communicate(timeout=30)[0].split() for worker in running]
    return sorted((float(began), float(ended)) for began, ended in told)


def test_only_one_has_the_machine_and_waits_for_who_gets_ready(tmp_path: Path) -> None:
    ready_at = time.monotonic() + 0.5
    first, second = workers(tmp_path / "turns", (0.0, "shares"), (0.5, "shares"))
    assert first[0] >= ready_at
    assert second[0] >= first[1]


def test_who_ends_without_a_word_lets_the_others_go_on(tmp_path: Path) -> None:
    first, second = workers(tmp_path / "turns", (0.0, "ends"), (0.1, "ends"))
    assert second[0] >= first[1]


def test_who_is_alone_waits_for_nobody(tmp_path: Path) -> None:
    turns = Turns("")
    turns.take()
    turns.share()
    path = tmp_path / "turns"
    path.touch()
    Turns(str(path)).take()
