"""A neural differential equation, solved by torchdiffeq."""

import torch
from torchdiffeq import odeint


class Flow(torch.nn.Module):
    """A learnt flow. ``dopri5`` chooses its steps by the error, ``rk4`` has fixed steps."""

    def __init__(self, method):
        super().__init__()
        self.method = method
        self.field = torch.nn.Sequential(
            torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)
        )

    def forward(self, state):
        times = torch.linspace(0.0, 1.0, 3, dtype=state.dtype, device=state.device)
        return odeint(
            lambda _, y: self.field(y), state, times, rtol=1e-3, atol=1e-4, method=self.method
        )
