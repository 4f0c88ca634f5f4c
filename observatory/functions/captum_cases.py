"""Attribution by Captum: gradients are taken inside of the compiled function."""

import torch
from captum.attr import IntegratedGradients


class Attribution(torch.nn.Module):
    """What each input contributes to the first class."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.Softplus(), torch.nn.Linear(32, 4)
        )

    def forward(self, x):
        return IntegratedGradients(self.layers).attribute(x, target=0, n_steps=8)
