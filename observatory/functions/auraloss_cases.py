"""A loss of auraloss over spectra, of sound that a filter has changed."""

import torch
from auraloss.freq import MultiResolutionSTFTLoss


class Filtered(torch.nn.Module):
    """The distance of filtered sound from its target, both (batch, 1, samples)."""

    def __init__(self):
        super().__init__()
        self.filter = torch.nn.Conv1d(1, 1, 9, padding=4)
        self.loss = MultiResolutionSTFTLoss(
            fft_sizes=[128, 256], hop_sizes=[32, 64], win_lengths=[128, 256]
        )

    def forward(self, sound, target):
        return self.loss(self.filter(sound), target)
