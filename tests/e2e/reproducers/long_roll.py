"""A roll by more than there is, with a dynamic shape, reads outside of the tensor.

Found in November 2026. Kind: C++ code of Inductor.
"""

import torch


def rolled(x):
    return x.roll(7) + 0


print("compiled", torch.compile(rolled, dynamic=True)(torch.arange(1.0, 7.0)).tolist())
