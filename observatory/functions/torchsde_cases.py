"""A stochastic differential equation, solved by torchsde along one Brownian path."""

import torch
from torchsde import BrownianInterval, sdeint


class Diffusion(torch.nn.Module):
    """An equation with diagonal noise, whose drift and diffusion are learnt."""

    noise_type = "diagonal"
    sde_type = "ito"

    def __init__(self):
        super().__init__()
        self.drift = torch.nn.Linear(2, 2)
        self.diffusion = torch.nn.Linear(2, 2)

    def f(self, t, y):
        return self.drift(y)

    def g(self, t, y):
        return self.diffusion(y).sigmoid()

    def forward(self, state):
        times = torch.linspace(0.0, 1.0, 5, dtype=state.dtype, device=state.device)
        path = BrownianInterval(0.0, 1.0, size=tuple(state.shape), dtype=state.dtype, entropy=0)
        return sdeint(self, state, times, bm=path, method="euler", dt=0.1)
