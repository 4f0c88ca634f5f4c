"""An update of indexed rows is done twice: https://github.com/pytorch/pytorch/issues/138908.

Reported of 2.4.0, October 2024. Kind: changes in place by index, dynamic shapes.
"""

import torch


@torch.compile(dynamic=True)
def double_rows(index, table):
    index = index + 10
    table[index] += table[index]


table = torch.ones(2, 4)
with torch.no_grad():
    double_rows(torch.full((1, 2), -10), table)
print("rows", table.tolist())
