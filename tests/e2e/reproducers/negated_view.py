"""The imaginary part of a conjugate, a view that keeps its sign as a bit of the tensor, as an input.

Found in November 2026. Kind: Inductor.
"""

import torch


def doubled(x):
    return x * 2


x = torch.tensor([1 + 2j]).conj().imag
print("eager", doubled(x).tolist())
print("compiled", torch.compile(doubled)(x).tolist())
