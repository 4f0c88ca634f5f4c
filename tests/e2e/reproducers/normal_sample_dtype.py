"""A sample has another dtype: https://github.com/pytorch/pytorch/issues/194547.

Reported in August 2026. Kind: random numbers, promotion of dtypes.
"""

import torch


def sample(mean, deviation):
    return torch.distributions.Normal(mean, deviation).sample()


mean, deviation = torch.zeros(8, dtype=torch.float16), torch.ones(8)
print("eager", sample(mean, deviation).dtype)
print("compiled", torch.compile(sample)(mean, deviation).dtype)
