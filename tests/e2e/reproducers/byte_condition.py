"""A condition of ``torch.where`` in bytes, as the masks of pytorch-crf are.

Found in November 2026 by pytorch-crf. Kind: fake tensors.
"""

import torch


def chosen(mask, x):
    return torch.where(mask, x, -x)


mask = torch.tensor([1, 0], dtype=torch.uint8)
print(torch.compile(chosen, backend="eager", fullgraph=True)(mask, torch.ones(2)).tolist())
