"""The functions that model.py names. Imported in the cells only."""

import torch
from torchdiffeq import odeint


class Flow(torch.nn.Module):
    """A neural ODE. The solver chooses its steps by the error, so control flow depends on data."""

    def __init__(self):
        super().__init__()
        self.field = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 16)
        )

    def forward(self, state):
        times = torch.tensor([0.0, 1.0], dtype=state.dtype, device=state.device)
        return odeint(lambda _, y: self.field(y), state, times, rtol=1e-3, atol=1e-4)[-1]


def make_model(size):
    """Return the model. ivhl seeds PyTorch before, and puts the model back before each call."""
    del size
    return Flow()


def make_inputs(size, generator):
    """Return a tuple of what the model is called with, drawn from the generator alone."""
    return (torch.randn(size, 16, dtype=torch.float64, generator=generator),)
