"""``torch.func.grad`` of changed views is halved: https://github.com/pytorch/pytorch/issues/136662.

Reported in September 2024. Kind: transforms of functions, views.
"""

import torch


def loss(x):
    y = torch.zeros_like(x)
    y[:, 0] += x[:, 2].abs()
    y[:, 0] += x[:, 2].abs()
    return y.sum()


@torch.compile(fullgraph=True)
def slope(x):
    return torch.func.grad(loss)(x)


x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]])
print("eager", torch.func.grad(loss)(x).tolist())
print("compiled", slope(x).tolist())
