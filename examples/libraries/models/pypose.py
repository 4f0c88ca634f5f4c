"""The functions that model.py names. Imported in the cells only."""

import pypose as pp
import torch


class Poses(torch.nn.Module):
    """Points seen from poses that are learnt."""

    def __init__(self, count):
        super().__init__()
        self.pose = pp.Parameter(pp.randn_SE3(count))

    def forward(self, points):
        return self.pose.Inv().unsqueeze(-2) @ points, self.pose.Log().tensor()


def make_model(size):
    """Return the model. ivhl seeds PyTorch before, and puts the model back before each call."""
    return Poses(size)


def make_inputs(size, generator):
    """Return a tuple of what the model is called with, drawn from the generator alone."""
    return (torch.randn(size, 100, 3, dtype=torch.float64, generator=generator),)
