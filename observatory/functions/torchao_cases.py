"""Linear layers whose weights torchao has quantised to 8 bits, in a subclass of Tensor."""

import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_


def int8():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 16))
    quantize_(model, Int8WeightOnlyConfig())
    return model
