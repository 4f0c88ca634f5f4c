"""Compiled code cannot count the elements of an empty tensor that it makes itself."""

import torch


def count(x):
    return x + 1, torch.tensor([]).nonzero()


x = torch.ones(2)
print("eager", count(x)[1].shape)
print("compiled", torch.compile(count)(x)[1].shape)
