"""The forms of RoPE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ivhl.surgical.operations import make_angles, rotate

if TYPE_CHECKING:
    from benchmarks.surgical.rope import Size


def make_inputs(
    size: Size, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw queries and keys ``[n_batch, n_heads, n_tokens, n_head]``, and tables of angles.

    The tables are those of positions that are moved by a random whole number, so that each draw
    has others.
    """
    shape = (size.n_batch, size.n_heads, size.n_tokens, size.n_head)
    q, k = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2))
    moved = int(torch.randint(100, (), generator=generator))
    cosines, sines = make_angles(moved + size.n_tokens, size.n_head, dtype=torch.float64)
    return q, k, cosines[moved:].clone(), sines[moved:].clone()


def rope(
    q: torch.Tensor, k: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return turned queries and keys, as one would first write it: by even and odd numbers."""
    turned = []
    for x in (q, k):
        even, odd = x[..., 0::2], x[..., 1::2]
        pairs = [even * cosines - odd * sines, even * sines + odd * cosines]
        turned.append(torch.stack(pairs, dim=-1).flatten(-2))
    return turned[0], turned[1]


def rotate_both(
    q: torch.Tensor, k: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return turned queries and keys by the operation of ``ivhl.surgical``."""
    return rotate(q, cosines, sines), rotate(k, cosines, sines)
