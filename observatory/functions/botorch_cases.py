"""An acquisition function of BoTorch over a Gaussian process."""

import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.sampling.normal import SobolQMCNormalSampler


class Acquisition(torch.nn.Module):
    """How much candidates (batch, points, width) are expected to improve on given data."""

    def __init__(self):
        super().__init__()
        self.model = SingleTaskGP(torch.rand(8, 2), torch.rand(8, 1), outcome_transform=None)
        self.sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)

    def forward(self, candidates, points, values):
        # New data also clear what the model has kept of an earlier call, in its precision.
        self.model.set_train_data(points, values, strict=False)
        improved = qLogExpectedImprovement(self.model, values.max(), self.sampler)(candidates)
        # What it has kept of a graph cannot be copied.
        self.model.prediction_strategy = None
        self.model.set_train_data(points.detach(), values.detach(), strict=False)
        return improved
