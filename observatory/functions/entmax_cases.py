"""Attention of entmax: sorting, bisection, an autograd function."""

import torch
from entmax import entmax15, entmax_bisect, sparsemax


class Attention(torch.nn.Module):
    """Attention whose three heads have sparse weights, each of another function."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(32, 288)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (9, 32)).movedim(-2, 0).chunk(3)
        scores = q @ k.mT
        weights = sparsemax(scores[0]), entmax15(scores[1]), entmax_bisect(scores[2], alpha=1.3)
        return torch.stack(weights) @ v
