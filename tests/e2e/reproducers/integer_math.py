"""A factorial in compiled code, on Python 3.15, which moved it to the module ``math.integer``.

Found in November 2026. Kind: graph break of Dynamo, of PyTorch 2.15.0 on Python 3.15.
"""

import math

import torch


@torch.compile(backend="eager", fullgraph=True)
def scaled(x):
    return x / math.factorial(3)


print(scaled(torch.ones(2)).tolist())
