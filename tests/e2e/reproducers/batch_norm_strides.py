"""Fake tensors have other strides than real ones: https://github.com/pytorch/pytorch/issues/192668.

Reported in August 2026. Kind: fake tensors, ``torch.export``.
"""

import torch


class Flat(torch.nn.Module):
    def forward(self, x):
        one, zero = torch.ones(4), torch.zeros(4)
        norm = torch.ops.aten.native_batch_norm.default
        return norm(x, one, zero, zero.clone(), one.clone(), True, 0.1, 1e-5)[0].view(-1)


x = torch.arange(24.0).view(2, 3, 4).transpose(1, 2)
print("eager", Flat()(x).shape)
print("exported", torch.export.export(Flat(), (x,)).module()(x).shape)
