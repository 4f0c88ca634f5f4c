"""Linear layers whose weights quanto has quantised to 8 bits."""

import torch
from optimum.quanto import freeze, qint8, quantize


def int8():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 16))
    quantize(model, weights=qint8)
    freeze(model)
    return model
