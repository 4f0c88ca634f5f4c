"""The same layer in real numbers: each complex matrix is a block matrix of its two parts."""

from __future__ import annotations

import torch


def reference(
    tensors: torch.Tensor, disentanglers: torch.Tensor, isometries: torch.Tensor
) -> torch.Tensor:
    """Return the coarse tensors, shape ``[n_pairs, bond]``, complex128.

    Pair by pair, columns instead of rows: ``z = W^T (U^T x)``.
    """
    coarse = []
    for pair, (u, w) in enumerate(zip(disentanglers, isometries, strict=True)):
        x = torch.cat((tensors[2 * pair].flatten(), tensors[2 * pair + 1].flatten()))
        parts = torch.cat((x.real, x.imag)).double()
        z = _blocks(w.T) @ (_blocks(u.T) @ parts)
        coarse.append(torch.complex(*z.chunk(2)))
    return torch.stack(coarse)


def _blocks(matrix: torch.Tensor) -> torch.Tensor:
    re, im = matrix.real.double(), matrix.imag.double()
    return torch.cat((torch.cat((re, -im), dim=1), torch.cat((im, re), dim=1)), dim=0)
