"""A step of an optimizer of pytorch-optimizer."""

import torch
from pytorch_optimizer import Lion


def lion(weights, gradient):
    """Return the weights after one step."""
    weights = torch.nn.Parameter(weights.clone())
    weights.grad = gradient.clone()
    Lion([weights], lr=0.01).step()
    return weights.detach()
