"""Compiled code cannot count the elements of an empty tensor that it makes itself."""

import torch


def count(x):
    return x + 1, torch.tensor([]).nonzero()


x = torch.ones(2)
print("eager", count(x)[1].shape)
try:
    print("compiled", torch.compile(count)(x)[1].shape)
except Exception as error:
    print("compiled", type(error).__name__, str(error).splitlines()[0])
