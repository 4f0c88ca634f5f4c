"""Time eager functions of complex and of real numbers, with torch alone.

``python studies/defects/complex_exponential.py`` prints the CPU µs of a call of each.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 30
CALLS = 3


def microseconds(call: Callable[[], torch.Tensor]) -> float:
    """Return the median CPU time of a call."""
    call()
    samples = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(CALLS):
            call()
        samples.append((time.process_time() - began) / CALLS)
    return median(samples) * 1e6


def main() -> None:
    """Print the times of four functions on one thread."""
    torch.set_num_threads(1)
    z, r = torch.randn(2048, 20, dtype=torch.complex64), torch.randn(2048, 20)
    calls = {
        "z.exp()": z.exp,
        "z / r": lambda: z / r,
        "z * z": lambda: z * z,
        "r.exp()": r.exp,
    }
    for name, call in calls.items():
        print(torch.__version__, name, f"{microseconds(call):.0f} µs")


if __name__ == "__main__":
    main()
