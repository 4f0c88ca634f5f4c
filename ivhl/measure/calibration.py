"""How fast the machine is at the moment: fixed work that no project, and no compiler, changes.

The seconds of one case differ by 16 to 20 % between runs on a virtual machine (standard deviation
over nine runs of the core suite), and eager and compiled code move together. Divided by the seconds
of this work, measured beside the case, they can be compared between runs.

The code of the work comes with torch. Functions of the standard library are no such work: CPython
3.14 brought another BLAKE2, which takes 1.3 times as long, and Pythons come with C libraries of
their own.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

# Each takes 5 to 10 ms.
COMPUTATIONS, COPIES = 200, 15
COMPUTED = 2**15
COPIED = 2**21


def calibrate(device: torch.device) -> dict[str, float]:
    """Return the seconds of each kind of work: the median of its calls, after an untimed one.

    All together 15 ms. CPU time of this thread on the CPU; elapsed time on a GPU.

    Returns:
        ``compute_s``: the sine of 32,768 float32 numbers, which fit into the L2 cache.
        ``memory_s``: a copy of 8 MiB.
    """
    x = torch.linspace(0.0, 1.0, COMPUTED, device=device)
    wide = torch.zeros(COPIED, device=device)
    to = torch.empty_like(wide)
    return {
        "compute_s": _seconds(x.sin, device, COMPUTATIONS),
        "memory_s": _seconds(lambda: to.copy_(wide), device, COPIES),
    }


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
    if device.type == "cuda":
        torch.cuda.synchronize(device)
