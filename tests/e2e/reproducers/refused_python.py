"""Dynamo refuses a Python that is newer than the release of PyTorch."""

import torch

print("compiled", torch.compile(torch.neg, backend="eager")(torch.ones(2)).tolist())
