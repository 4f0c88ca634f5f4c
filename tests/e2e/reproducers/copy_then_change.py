"""A copy is made after its source has changed: https://github.com/pytorch/pytorch/issues/198131.

Reported of 2.14.0 and a nightly of 2.15. Kind: order of changes in place.
"""

import torch


def save_then_count(saved, counter):
    saved[0:, :] = counter[0:, :]
    counter.add_(1)
    return counter


saved, counter = torch.zeros(3, 4), torch.arange(12.0).view(3, 4)
torch.compile(save_then_count)(saved, counter)
print("saved", saved[0].tolist())
