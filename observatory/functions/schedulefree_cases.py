"""A step of schedulefree's optimizer."""

import torch
from schedulefree import AdamWScheduleFree


def adamw(weights, gradient):
    """Return the weights after one step."""
    weights = torch.nn.Parameter(weights.clone())
    weights.grad = gradient.clone()
    optimizer = AdamWScheduleFree([weights], lr=0.01)
    optimizer.train()
    optimizer.step()
    return weights.detach()
