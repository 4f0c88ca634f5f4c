"""The functions that model.py names. Imported in the cells only."""

import torch
from complexPyTorch.complexLayers import (
    ComplexBatchNorm2d,
    ComplexConv2d,
    ComplexMaxPool2d,
    ComplexReLU,
)


def make_model(size):
    """Return the model. ivhl seeds PyTorch before, and puts the model back before each call."""
    return torch.nn.Sequential(
        ComplexConv2d(1, 8, 5), ComplexReLU(), ComplexMaxPool2d(2), ComplexBatchNorm2d(8)
    )


def make_inputs(size, generator):
    """Return a tuple of what the model is called with, drawn from the generator alone."""
    return (torch.randn(size, 1, 28, 28, dtype=torch.complex128, generator=generator),)
