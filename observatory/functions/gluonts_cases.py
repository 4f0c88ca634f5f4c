"""A forecasting network of GluonTS."""

import torch
from gluonts.torch.model.simple_feedforward.module import SimpleFeedForwardModel


class Feedforward(torch.nn.Module):
    """The parameters of a forecast, its location and its scale."""

    def __init__(self):
        super().__init__()
        self.model = SimpleFeedForwardModel(
            prediction_length=4, context_length=16, hidden_dimensions=[32, 32]
        )

    def forward(self, past):
        return self.model(past)
