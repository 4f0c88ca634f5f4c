"""Inductor concatenates views, as another dtype, of a result that it has just computed.

Found in November 2026. Kind: lowering of Inductor, of PyTorch 2.6.0.
"""

import torch


def ring(words):
    x = words.view(torch.int64).to(torch.int32).view(torch.float32)
    return torch.cat((x[-1:], x, x[:1]))


print("elements", torch.compile(ring)(torch.randn(8, dtype=torch.float64)).numel())
