"""CPU time of all descendants is counted, and no descendant survives its case."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ivhl.measure.clocks import begin, since
from ivhl.measure.supervisor import living_descendants

ROOT = Path(__file__).parents[2]
BURN_S = 0.05
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def burn(seconds: float = BURN_S) -> None:
    """Use CPU time in this thread."""
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass


def run_alone(code: str) -> str:
    """Return the output of a new process, which has no other children."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()


def test_work_counts_on_all_clocks() -> None:
    began = begin()
    burn()
    took = since(began)
    for seconds in (took.wall, took.process, took.thread, took.cpu):
        assert seconds >= BURN_S * 1e9


def test_waiting_counts_only_on_the_wall_clock() -> None:
    began = begin()
    time.sleep(BURN_S)
    took = since(began)
    assert took.wall >= BURN_S * 1e9
    assert took.cpu < took.wall / 2


def test_another_thread_counts_on_the_process_clock_only() -> None:
    began = begin()
    other = threading.Thread(target=burn)
    other.start()
    other.join()
    took = since(began)
    assert took.process >= BURN_S * 1e9
    assert took.thread < took.process / 2


def test_a_child_that_has_ended_is_counted() -> None:
    code = "import time\nwhile time.process_time() < 0.1: pass"
    began = begin()
    subprocess.run([sys.executable, "-c", code], check=True)
    assert since(began).children >= 0.1e9


def test_a_living_descendant_is_counted_if_it_is_given() -> None:
    code = "import time\nprint(1, flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in living_descendants()
        named, unnamed = begin([child.pid]), begin()
        ends = time.monotonic() + 10
        while since(named, [child.pid]).children < 0.05e9 and time.monotonic() < ends:
            time.sleep(0.01)
        assert since(named, [child.pid]).children >= 0.05e9
        assert since(unnamed).children < 0.05e9
        child.kill()


@pytest.mark.parametrize("clock", ["perf_counter_ns", "process_time_ns", "thread_time_ns"])
def test_a_replaced_clock_is_not_used(clock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, clock, lambda: 0)
    began = begin()
    burn()
    took = since(began)
    assert min(took.wall, took.process, took.thread) >= BURN_S * 1e9


ORPHAN = """
import os, time
from ivhl.measure.supervisor import adopt_orphans, end_descendants, living_descendants
{before}
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        time.sleep(60)
    os._exit(0)
os.wait()
orphan = int(os.read(read, 20))
print(orphan in living_descendants(), end=" ")
end_descendants()
try:
    os.kill(orphan, 0)
    print("alive")
    os.kill(orphan, 9)
except ProcessLookupError:
    print("gone")
"""


def test_an_orphan_is_a_descendant_and_is_killed() -> None:
    assert run_alone(ORPHAN.format(before="adopt_orphans()")) == "True gone"
    assert run_alone(ORPHAN.format(before="")) == "False alive"
