"""Residual streams of hyper-connections around two layers."""

import torch
from hyper_connections import HyperConnections


class Streams(torch.nn.Module):
    """Two layers over four residual streams."""

    def __init__(self):
        super().__init__()
        connect, self.expand, self.reduce = (
            HyperConnections.get_init_and_expand_reduce_stream_functions(4)
        )
        make = lambda: torch.nn.Sequential(torch.nn.LayerNorm(32), torch.nn.Linear(32, 32))
        self.layers = torch.nn.ModuleList(
            connect(dim=32, branch=make(), layer_index=index) for index in range(2)
        )

    def forward(self, x):
        x = self.expand(x)
        for layer in self.layers:
            x = layer(x)
        return self.reduce(x)
