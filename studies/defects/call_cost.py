"""Time the call of a compiled ``x + 1``, with torch alone.

``python studies/defects/call_cost.py`` prints the CPU µs of a call, plain and with ``fullgraph``.
"""

from __future__ import annotations

import time

import torch

CALLS = 3000


def microseconds(*, fullgraph: bool) -> float:
    """Return the CPU time of a call on one thread, after as many calls to warm up."""
    function = torch.compile(lambda x: x + 1, fullgraph=fullgraph)
    x, seconds = torch.zeros(8), 0.0
    for _ in range(2):
        began = time.thread_time()
        for _ in range(CALLS):
            function(x)
        seconds = time.thread_time() - began
    return seconds / CALLS * 1e6


if __name__ == "__main__":
    torch.set_num_threads(1)
    for fullgraph in (False, True):
        print(torch.__version__, f"fullgraph={fullgraph}", microseconds(fullgraph=fullgraph), "µs")
