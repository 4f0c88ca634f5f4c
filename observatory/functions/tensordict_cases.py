"""A module that reads and writes a TensorDict by names."""

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential


class Named(torch.nn.Module):
    """Two layers that hand a TensorDict on."""

    def __init__(self):
        super().__init__()
        first = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh())
        self.layers = TensorDictSequential(
            TensorDictModule(first, in_keys=["seen"], out_keys=["hidden"]),
            TensorDictModule(torch.nn.Linear(32, 4), in_keys=["hidden"], out_keys=["action"]),
        )

    def forward(self, seen):
        found = self.layers(TensorDict({"seen": seen}, batch_size=seen.shape[:1]))
        return found["hidden"], found["action"]
