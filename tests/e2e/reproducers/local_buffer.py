"""A buffer of a fused kernel is too small: https://github.com/pytorch/pytorch/issues/159154.

Reported of 2.7.1, July 2025. Kind: C++ code of Inductor that writes outside of its memory.
"""

import torch


def normalised(weights, field):
    energy = torch.exp(-torch.einsum("i...,i->i...", field, weights))
    return torch.einsum("i,i...->i...", 1 / torch.einsum("i...->i", energy), energy)


field, weights = torch.ones(5, 1, 32, 32), torch.ones(5)
found = torch.compile(normalised)(weights, field)
print("equal", torch.allclose(found, normalised(weights, field)))
