"""The density of a regression in Pyro."""

import pyro
import torch
from pyro.distributions import Normal


class Density(torch.nn.Module):
    """The logarithm of the joint density, by Pyro's effect handlers."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.randn(4))

    def regress(self, x, y):
        weights = pyro.sample("weights", Normal(torch.zeros_like(self.weights), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", Normal(x @ weights, 0.5), obs=y)

    def forward(self, x, y):
        model = pyro.condition(self.regress, {"weights": self.weights})
        return pyro.poutine.trace(model).get_trace(x, y).log_prob_sum()
