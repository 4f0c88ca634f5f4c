"""A parameter that compiled code makes of a copy shares the memory of the original, on a CPU.

Found in November 2026 by the optimizers of lion-pytorch, pytorch-optimizer and schedulefree. Kind: Inductor.
"""

import torch


def step(weights):
    parameter = torch.nn.Parameter(weights.clone())
    torch._dynamo.graph_break()
    with torch.no_grad():
        parameter.mul_(2)
    return parameter


weights = torch.ones(2)
torch.compile(step)(weights)
print("weights", weights.tolist())
