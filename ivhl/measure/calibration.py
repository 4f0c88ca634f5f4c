"""Time fixed work, which no project and no compiler changes: the machine's speed right now.

The seconds of one case differ by 16 to 20 % between runs on a virtual machine (standard deviation
over nine runs of the core suite), and eager and compiled code move together. Divided by the seconds
of this work, measured beside the case, they can be compared between runs.
"""

from __future__ import annotations

import time
from functools import cache
from statistics import median
from typing import TYPE_CHECKING

import torch

from ivhl.measure.yardstick import Yardstick

if TYPE_CHECKING:
    from collections.abc import Callable

# Each takes 5 to 10 ms. A call of machine code makes enough passes that the call itself, which
# differs between Pythons, takes less than 1 % of it.
CALLS, PASSES = 50, 8
COMPUTATIONS, COPIES = 200, 15
COMPUTED = 2**15
COPIED = 2**21


def calibrate(device: torch.device) -> dict[str, float]:
    """Return the seconds of each kind of work: the median of its calls, after an untimed one.

    All together 15 ms. CPU time of this thread on the CPU; elapsed time on a GPU.

    Returns:
        ``code_s``: one pass of fixed machine code (``yardstick``) on the CPU. Where it cannot run,
            and on a GPU, ``compute_s`` in its place: the sine of 32,768 float32 numbers, whose
            kernel comes with torch.
        ``memory_s``: a copy of 8 MiB, for comparisons within a process.
    """
    found = {}
    yardstick = load_yardstick() if device.type == "cpu" else None
    if yardstick is not None:
        found["code_s"] = _seconds(lambda: yardstick(PASSES), device, CALLS) / PASSES
    else:
        x = torch.linspace(0.0, 1.0, COMPUTED, device=device)
        found["compute_s"] = _seconds(x.sin, device, COMPUTATIONS)
    wide = torch.zeros(COPIED, device=device)
    to = torch.empty_like(wide)
    return found | {"memory_s": _seconds(lambda: to.copy_(wide), device, COPIES)}


@cache
def load_yardstick() -> Yardstick | None:
    """Return the machine code; ``None`` where it cannot run."""
    try:
        return Yardstick()
    except OSError:
        return None


def _seconds(call: Callable[[], object], device: torch.device, repetitions: int) -> float:
    clock = time.thread_time_ns if device.type == "cpu" else time.perf_counter_ns
    call()
    found = []
    for _ in range(repetitions):
        _wait(device)
        began = clock()
        call()
        _wait(device)
        found.append(clock() - began)
    return median(found) / 1e9


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()
