"""A regression in Pyro: its density, and the loss of variational inference."""

import pyro
import torch
from pyro.distributions import Normal
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule, PyroSample


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


class Regression(PyroModule):
    """A linear regression whose weights are drawn."""

    def __init__(self):
        super().__init__()
        self.weights = PyroSample(Normal(torch.zeros(4), 1.0).to_event(1))

    def forward(self, x, y):
        mean = x @ self.weights
        with pyro.plate("data", len(x)):
            return pyro.sample("y", Normal(mean, 0.5), obs=y)


def elbo():
    model = Regression()
    guide = AutoNormal(model)
    guide(torch.randn(64, 4), torch.randn(64))  # makes its parameters
    return Trace_ELBO()(model, guide)
