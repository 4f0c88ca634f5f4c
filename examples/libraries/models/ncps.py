"""The functions that model.py names. Imported in the cells only."""

import torch
from ncps.torch import CfC
from ncps.wirings import AutoNCP


def make_model(size):
    """Return the model. ivhl seeds PyTorch before, and puts the model back before each call."""
    return CfC(12, AutoNCP(24, 4, seed=7))


def make_inputs(size, generator):
    """Return a tuple of what the model is called with, drawn from the generator alone."""
    return (torch.randn(size, 10, 12, dtype=torch.float64, generator=generator),)
