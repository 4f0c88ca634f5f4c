"""The functions that model.py names. Imported in the cells only."""

import torch
from egnn_pytorch import EGNN_Network


def make_model(size):
    """Return the model. ivhl seeds PyTorch before, and puts the model back before each call."""
    return EGNN_Network(depth=2, dim=32, num_nearest_neighbors=6)


def make_inputs(size, generator):
    """Return a tuple of what the model is called with, drawn from the generator alone."""
    feats = torch.randn(size, 24, 32, dtype=torch.float64, generator=generator)
    return feats, torch.randn(size, 24, 3, dtype=torch.float64, generator=generator)
