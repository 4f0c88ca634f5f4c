"""Gaussian processes of GPyTorch: the loss that is trained, and what is predicted."""

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP


class MarginalLikelihood(torch.nn.Module):
    """The negative logarithm of the density of data, per point."""

    def __init__(self):
        super().__init__()
        self.mean = ConstantMean()
        self.kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
        self.likelihood = GaussianLikelihood()

    def forward(self, x, y):
        latent = MultivariateNormal(self.mean(x), self.kernel(x))
        return -self.likelihood(latent).log_prob(y) / len(y)


class Process(ExactGP):
    """A Gaussian process whose data are set later."""

    def __init__(self):
        super().__init__(torch.zeros(1, 2), torch.zeros(1), GaussianLikelihood())
        self.mean_module = ConstantMean()
        self.kernel = ScaleKernel(RBFKernel(ard_num_dims=2))

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.kernel(x))


class Posterior(torch.nn.Module):
    """Mean and variance that a process predicts from data; in training it predicts nothing."""

    def __init__(self):
        super().__init__()
        self.process = Process()

    def forward(self, x, points, values):
        # New data also clear what the process has kept of an earlier call, in its precision.
        self.process.set_train_data(points, values, strict=False)
        predicted = self.process(x)
        return predicted.mean, predicted.variance
