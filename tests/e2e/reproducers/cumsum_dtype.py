"""A pattern of Inductor drops the dtype of a sum: https://github.com/pytorch/pytorch/issues/189518.

Reported in July 2026. Kind: dtype, a rewritten pattern.
"""

import torch


def positions():
    return torch.ones((2, 4, 4), dtype=torch.bool).cumsum(1, dtype=torch.bfloat16)


print("eager", positions().dtype)
print("compiled", torch.compile(positions)().dtype)
