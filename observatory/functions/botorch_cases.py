"""An acquisition function of BoTorch over a Gaussian process."""

import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.sampling.normal import SobolQMCNormalSampler


def acquisition():
    points = torch.rand(8, 2)
    model = SingleTaskGP(points, points.sin().sum(-1, keepdim=True))
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
    return qLogExpectedImprovement(model, best_f=0.5, sampler=sampler)
