"""Attention with the positions of rotary-embedding-torch."""

import torch
from rotary_embedding_torch import RotaryEmbedding


class Attention(torch.nn.Module):
    """Causal attention of two heads."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(64, 192)
        self.rotary = RotaryEmbedding(16)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 32)).movedim(-3, 0).transpose(-3, -2)
        q, k = self.rotary.rotate_queries_or_keys(q), self.rotary.rotate_queries_or_keys(k)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
