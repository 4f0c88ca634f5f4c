"""Spiking neurons of snntorch."""

import snntorch
import torch


class Spiking(torch.nn.Module):
    """A layer of leaky neurons over time, of inputs (time, batch, width)."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 8)
        self.neurons = snntorch.Leaky(beta=0.9, learn_beta=True)

    def forward(self, x):
        potential = torch.zeros(x.shape[1], 8, dtype=x.dtype, device=x.device)
        potentials = []
        for now in x:
            _, potential = self.neurons(self.layer(now), potential)
            potentials.append(potential)
        return torch.stack(potentials)
