"""A bound method that is asked whether it is true.

Found in November 2026. Kind: Dynamo, up to PyTorch 2.12.1.
"""

import torch


class Layer(torch.nn.Module):
    def apply_one(self, x):
        return x + 1

    def forward(self, x):
        return (self.apply_one or torch.sin)(x)


print(torch.compile(Layer(), backend="eager", fullgraph=True)(torch.ones(2)).tolist())
