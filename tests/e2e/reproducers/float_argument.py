"""Each float is compiled anew: https://github.com/pytorch/pytorch/issues/149405.

Reported of 2.5.1, March 2025. Kind: recompiles.
"""

import torch


@torch.compile(dynamic=True, backend="eager")
def scaled(x, factor):
    return x * factor


for factor in (1.5, 2.5, 3.5):
    print(scaled(torch.ones(3), factor).tolist())
