"""A check of TorchScript breaks the graph: https://github.com/pytorch/pytorch/issues/149556.

Found in November 2026 by torchaudio, whose spectrograms call it. Kind: graph break of Dynamo.
"""

import torch


@torch.compile(backend="eager", fullgraph=True)
def scaled(x, by):
    return x * 2 if torch.jit.isinstance(by, str) else x * by


print(scaled(torch.ones(2), "twice").tolist())
