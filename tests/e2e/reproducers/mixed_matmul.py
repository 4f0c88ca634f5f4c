"""Operands of two dtypes are multiplied without an error: https://github.com/pytorch/pytorch/issues/177630.

Reported in March 2026. Kind: an error of eager code that compiled code does not raise.
"""

import torch


def product(a, b):
    return torch.matmul(a, b)


def outcome(function):
    try:
        return str(function(torch.ones(2, 3, 4).half(), torch.ones(2, 4, 5)).dtype)
    except RuntimeError as error:
        return type(error).__name__


print("eager", outcome(product))
print("compiled", outcome(torch.compile(product)))
