"""A dimension that is marked as dynamic becomes a constant: https://github.com/pytorch/pytorch/issues/145587.

Reported in January 2025. Kind: dynamic shapes, an exception of Dynamo.
"""

import torch


def scaled(a, b):
    return a.shape[0] * a * b


first = torch.ones(4, 3)
torch._dynamo.mark_dynamic(first, 0, min=2, max=10)
compiled = torch.compile(scaled, backend="eager")
print(compiled(first, torch.ones(4, 3)).sum().item())
print(compiled(torch.ones(8, 3), torch.ones(8, 3)).sum().item())
