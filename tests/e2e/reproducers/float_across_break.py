"""A float that a graph break hands on compiles again for each value.

Found in November 2026. Kind: recompiles.
"""

import torch
from torch._dynamo.utils import counters


def summary(x):
    y = x.sin()
    return {"mean": y.mean().item(), "best": y.argmax(-1)}


for dynamic in (None, False):
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(summary, dynamic=dynamic)
    for _ in range(12):
        compiled(torch.randn(4, 4))
    print("dynamic", dynamic, counters["stats"]["unique_graphs"], end="; ")
