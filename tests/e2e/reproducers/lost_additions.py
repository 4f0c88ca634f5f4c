"""Additions to one row, compiled for one CPU thread: https://github.com/pytorch/pytorch/pull/147961.

Found in November 2026 by the derivative of a gather. Kind: C++ code of Inductor.
"""

import torch


def add(rows, index, values):
    return rows.index_add(0, index, values)


def loss(rows, index):
    return rows[index].sum()


torch.set_num_threads(1)
index, values = torch.tensor([0, 0]), torch.ones(2, 128)
found = torch.compile(add)(torch.zeros(1, 128), index, values)
rows = torch.zeros(1, 128, requires_grad=True)
torch.compile(loss)(rows, index).backward()
print("of 2 additions", found[0, 0].item(), "of 2 gradients", rows.grad[0, 0].item())
