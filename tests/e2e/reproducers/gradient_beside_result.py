"""An energy and its forces: compiled code that returns a result beside a gradient of it.

Found in November 2026 by captum and botorch. Kind: Dynamo, of PyTorch 2.15.0.
"""

import torch
from torch._dynamo.utils import counters


def forces(positions):
    energy = positions.sin().sum()
    return energy, torch.autograd.grad(energy, positions)[0]


compiled = torch.compile(forces, backend="eager")  # Dynamo alone decides it
positions = torch.ones(4, 3, requires_grad=True)
for _ in range(3):
    compiled(positions)
before = counters["frames"]["total"]
for _ in range(10):
    compiled(positions)
print("traced again", counters["frames"]["total"] - before)
