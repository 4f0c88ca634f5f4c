"""A normalizing flow of zuko."""

import torch
from zuko.flows import NSF


class Density(torch.nn.Module):
    """The logarithm of the density of points (batch, 3)."""

    def __init__(self):
        super().__init__()
        self.flow = NSF(3, transforms=2, hidden_features=(32, 32))

    def forward(self, x):
        return self.flow().log_prob(x)
