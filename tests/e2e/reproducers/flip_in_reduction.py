"""Gradients of a running sum behind a softmax are wrong on a CPU.

Found in November 2026 by zuko's spline flows. Kind: backward pass.
"""

import torch


def knots(w):
    return torch.softmax(torch.tanh(w), -1).cumsum(-1)


def gradient(function):
    torch.manual_seed(0)
    w, weights = torch.randn(96, 8, requires_grad=True), torch.randn(96, 8)
    (function(w) * weights).sum().backward()
    return w.grad


eager, compiled = gradient(knots), gradient(torch.compile(knots))
print("like eager", torch.allclose(eager, compiled, atol=1e-4))
