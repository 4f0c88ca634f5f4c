"""The keys of an OrderedDict that an object keeps.

Found in November 2026 by gpytorch and botorch, whose operators keep the names of their arguments.
Kind: Dynamo, from PyTorch 2.7.1 to 2.9.1.
"""

from collections import OrderedDict

import torch


class Named:
    def __init__(self):
        self.names = OrderedDict(scale=1).keys()


def shifted(x, named):
    for _ in named.names:
        x = x + 1
    return x


print(torch.compile(shifted, backend="eager")(torch.ones(2), Named()).tolist())
