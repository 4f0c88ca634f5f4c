"""TorchScript differentiates a chunk of which a part is unused to a wrong shape.

Found in November 2026 by PaiNN. Kind: the profiling executor of TorchScript.
"""

import torch


def product(x):
    a, b, _ = (x @ torch.eye(3)).chunk(3, -1)
    return (a * b).sum()


x = torch.rand(2, 3, requires_grad=True)
traced = torch.jit.trace(product, x, check_trace=False)
print("first call", list(torch.autograd.grad(traced(x), x)[0].shape), flush=True)
print("second call", list(torch.autograd.grad(traced(x), x)[0].shape))
