"""The docstring of a function that has none: its first constant, on Python 3.14 and later.

Found in November 2026 by keras, whose layers wrap their methods. Kind: Dynamo, of PyTorch 2.15.0.
"""

import torch


def scaled(x):
    return x * 3.5


def documented(x):
    return scaled(x) * (2 if scaled.__doc__ else 1)


for name, function in {"eager": documented, "compiled": torch.compile(documented)}.items():
    print(name, function(torch.ones(1)).item())
