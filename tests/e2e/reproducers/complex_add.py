"""A sum that broadcasts complex numbers: https://github.com/pytorch/pytorch/issues/174891.

Reported of a nightly of 2.11, February 2026. Kind: wrong result, complex numbers.
"""

import torch


def shifted(x):
    return x + torch.ones(2, 1, dtype=torch.complex64)


x = torch.full((2, 2), 1.0, dtype=torch.complex64)
print("eager", shifted(x).flatten().tolist())
print("compiled", torch.compile(shifted)(x).flatten().tolist())
