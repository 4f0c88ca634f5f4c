"""A model with the hooks that accelerate attaches when it spreads layers over devices."""

import torch
from accelerate import dispatch_model


def dispatched():
    layers = torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)
    return dispatch_model(torch.nn.Sequential(*layers), {"": "cpu"}, force_hooks=True)
