"""The gradient behind ``to_dense`` of a tensor that is dense already, which returns that tensor.

Found in November 2026 by the loss of sentence-transformers, whose similarities are dense. Kind: AOTAutograd.
"""

import torch


def loss(weights):
    return (2 * weights).to_dense().sum() + weights.sum()


for name, function in {"eager": loss, "compiled": torch.compile(loss)}.items():
    weights = torch.ones(2, requires_grad=True)
    function(weights).backward()
    print(name, weights.grad.tolist())
