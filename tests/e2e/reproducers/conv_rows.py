"""C++ code names a variable that it does not declare: https://github.com/pytorch/pytorch/issues/193581.

Reported in August 2026. Kind: C++ code of Inductor that does not compile.
"""

import torch


def rows(image):
    found = torch.nn.functional.conv2d(image, torch.ones(2, 2, 1, 6), padding=2)
    return torch.index_select(found, 2, torch.tensor([3, 4, 6, 8]))


with torch.no_grad():
    print(torch.compile(rows)(torch.ones(1, 2, 5, 6)).sum().item())
