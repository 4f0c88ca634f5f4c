"""Poses of a Lie group, which pypose keeps in a subclass of Tensor."""

import pypose
import torch


class Poses(torch.nn.Module):
    """Points seen from poses that are learnt."""

    def __init__(self):
        super().__init__()
        self.pose = pypose.Parameter(pypose.randn_SE3(8))

    def forward(self, points):
        return self.pose.Inv().unsqueeze(-2) @ points, self.pose.Log().tensor()
