"""Gradients of slice_scatter are wrong: https://github.com/pytorch/pytorch/issues/180771.

Reported in April 2026. Kind: backward pass.
"""

import torch


def replaced(x, y):
    return torch.slice_scatter(x, y, dim=0, start=0, end=2).sum()


x = torch.arange(1.0, 6.0, requires_grad=True)
y = torch.tensor([10.0, 20.0], requires_grad=True)
torch.compile(replaced)(x, y).backward()
print("gradient", x.grad.tolist(), y.grad.tolist())
