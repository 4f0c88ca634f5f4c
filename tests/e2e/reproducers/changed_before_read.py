"""An input is changed before it has been read: https://github.com/pytorch/pytorch/issues/198270.

Found in November 2026. Kind: fused loops of Inductor, changes in place.
"""

import torch


def mirror(x):
    x.mul_(2)
    return x - x.flip(0)


def scatter(x):
    x[torch.arange(4)] = x * 2
    return x.add_(x.flip(0))


def centre(x):
    x.add_(1)
    return x - x.mean(0)


x = torch.arange(12.0).reshape(4, 3).sin()
for f in (mirror, scatter, centre):
    off = (f(x.clone()) - torch.compile(f)(x.clone())).abs().max().item()
    print(f.__name__, round(off, 2), end="; ")
