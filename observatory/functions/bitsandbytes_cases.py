"""Linear layers of bitsandbytes with weights of 8 bits."""

import torch
from bitsandbytes.nn import Linear8bitLt


def int8():
    layers = (
        Linear8bitLt(64, 64, has_fp16_weights=False),
        Linear8bitLt(64, 16, has_fp16_weights=False),
    )
    # Weights are quantised where they are moved to a device.
    return torch.nn.Sequential(layers[0], torch.nn.GELU(), layers[1]).to("cpu")
