"""Residual streams of hyper-connections around two layers."""

import torch
from hyper_connections import HyperConnections


class Streams(torch.nn.Module):
    """Two layers over four residual streams."""

    def __init__(self):
        super().__init__()
        make = HyperConnections.get_init_and_expand_reduce_stream_functions
        connect, self.expand, self.reduce = make(4)
        branches = (
            torch.nn.Sequential(torch.nn.LayerNorm(32), torch.nn.Linear(32, 32)) for _ in range(2)
        )
        self.layers = torch.nn.ModuleList(
            connect(dim=32, branch=branch, layer_index=index)
            for index, branch in enumerate(branches)
        )

    def forward(self, x):
        x = self.expand(x)
        for layer in self.layers:
            x = layer(x)
        return self.reduce(x)
