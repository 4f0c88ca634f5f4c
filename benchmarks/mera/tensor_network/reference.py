"""The same grid as a product of transfer matrices, applied to a boundary state."""

from __future__ import annotations

import math

import torch


def reference(*tensors: torch.Tensor) -> torch.Tensor:
    """Return the contraction, shape ``[bond]``, complex128.

    A state with one axis per column moves down; each tensor takes in the axis above it and the one
    from its left. Every tensor gets all four axes for that, those to nowhere with one element.
    """
    n = math.isqrt(len(tensors))
    state = torch.ones((1,) * n, dtype=torch.complex128, device=tensors[0].device)
    for row in range(n):
        state = state.unsqueeze(-1)
        for column in range(n):
            tensor = tensors[row * n + column].to(torch.complex128)
            absent = ((0, row == 0), (1, column == 0), (2, column == n - 1))
            for axis in [axis for axis, is_absent in absent if is_absent]:
                tensor = tensor.unsqueeze(axis)
            if row == n - 1 and column < n - 1:
                tensor = tensor.unsqueeze(3)
            state = torch.tensordot(state, tensor, dims=([column, n], [0, 1]))
            # Now the axes are those of the other columns, right and down.
            state = state.movedim(-1, column)
        state = state.squeeze(-1)
    return state.flatten()
