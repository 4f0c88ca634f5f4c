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
    """A Gaussian process that has seen sixteen points."""

    def __init__(self):
        points = torch.rand(16, 2)
        super().__init__(points, points.sin().sum(-1), GaussianLikelihood())
        self.mean_module = ConstantMean()
        self.kernel = ScaleKernel(RBFKernel(ard_num_dims=2))

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.kernel(x))


class Posterior(torch.nn.Module):
    """Mean and variance that a process predicts."""

    def __init__(self):
        super().__init__()
        self.process = Process()

    def forward(self, x):
        predicted = self.process(x)
        return predicted.mean, predicted.variance


def posterior():
    return Posterior().eval()
