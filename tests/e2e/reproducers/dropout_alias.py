"""A change through the result of dropout is lost: https://github.com/pytorch/pytorch/issues/195422.

Reported in August 2026. Kind: aliasing; the input is changed in place by eager code alone.
"""

import torch


def doubled(x):
    same = torch.nn.functional.dropout(x, 0.5, training=False)
    same += same
    return same


x = torch.ones(2, 2)
torch.compile(doubled)(x)
print("the input after the call", x.flatten().tolist())
