"""A step of lion-pytorch's optimizer."""

import torch
from lion_pytorch import Lion


def lion(weights, gradient):
    """Return the weights after one step."""
    weights = torch.nn.Parameter(weights.clone())
    weights.grad = gradient.clone()
    Lion([weights], lr=0.01, weight_decay=0.1).step()
    return weights.detach()
