"""A context manager crosses a graph break: https://github.com/pytorch/pytorch/issues/124900.

Reported in April 2024. Kind: graph break, an exception of Dynamo.
"""

import torch


@torch.compile(backend="eager")
def added(x):
    context = torch.set_grad_enabled(True)
    torch._dynamo.graph_break()
    with context:
        return x + 1


print(added(torch.ones(3)).tolist())
