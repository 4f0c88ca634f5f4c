"""Linear layers whose weights quanto has quantised to 8 bits."""

import torch
from optimum.quanto import freeze, qint8, quantize

torch.manual_seed(0)
# Made once: its weights cannot be copied (``copy.deepcopy`` needs their ``clone``).
MODEL = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 16))
quantize(MODEL, weights=qint8)
freeze(MODEL)


def int8(x):
    """Return what the layers compute in float32."""
    return MODEL(x.float()).to(x.dtype)
