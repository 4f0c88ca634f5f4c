"""A sum of transposed complex tensors: https://github.com/pytorch/pytorch/issues/163243.

Found in November 2026 by results of ``torch.einsum``. Kind: complex numbers, Inductor.
"""

import torch


def total(x):
    return (x.mT @ x).mT + (x @ x).mT


print("shape", list(torch.compile(total)(torch.randn(4, 4, dtype=torch.complex64)).shape))
