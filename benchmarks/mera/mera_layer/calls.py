"""Inputs of the MERA layer's workload, and its calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ivhl.ops.mera import make_apply_mera_map, make_mera_map, mera_layer, pack_mera_map

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.mera.mera_layer import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw tensors, unitary disentanglers and isometries.

    Returns:
        Tensors ``[n_sites, d, d]``, disentanglers ``[n_pairs, 2 d^2, 2 d^2]`` and isometries
        ``[n_pairs, 2 d^2, 2 d]``, all complex128.
    """
    n_pairs, width = size.n_sites // 2, 2 * size.d**2
    shape = (size.n_sites, size.d, size.d)
    tensors = torch.randn(shape, dtype=torch.complex128, generator=generator)
    disentanglers = _draw_isometries(n_pairs, width, width, generator)
    isometries = _draw_isometries(n_pairs, width, 2 * size.d, generator)
    return tensors, disentanglers, isometries


def layer(
    tensors: torch.Tensor, disentanglers: torch.Tensor, isometries: torch.Tensor
) -> torch.Tensor:
    """Return the coarse tensors, shape ``[n_pairs, 2 d]``."""
    return mera_layer(tensors, disentanglers, isometries)


def prepare_map(
    tensors: torch.Tensor, disentanglers: torch.Tensor, isometries: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return the tensors, and the planes of the one map that both maps are."""
    return tensors, pack_mera_map(make_mera_map(disentanglers, isometries))


def prepare_pairs(
    tensors: torch.Tensor, disentanglers: torch.Tensor, isometries: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return the same with tensors in pairs of real numbers, shape ``[n_sites, d, d, 2]``."""
    tensors, packed_map = prepare_map(tensors, disentanglers, isometries)
    return torch.view_as_real(tensors), packed_map


def as_complex(planes: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the coarse tensors of both planes."""
    return torch.complex(*planes)


def make_apply_map(compiler: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return the layer for a packed map, in real arithmetic, compiled by ``compiler``."""
    return make_apply_mera_map(compiler)


def _draw_isometries(n: int, rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    # Columns of the Fourier matrix between random phases: as dense as any, and unlike a QR
    # decomposition it costs next to nothing at 128 matrices of 2048 by 2048.
    index = torch.arange(rows)
    angle = 2.0 * math.pi / rows * ((index[:, None] * index[None, :columns]) % rows).double()
    fourier = torch.polar(torch.full_like(angle, 1.0 / math.sqrt(rows)), angle)
    turns = torch.rand(n, rows + columns, dtype=torch.float64, generator=generator)
    phases = torch.polar(torch.ones_like(turns), 2.0 * math.pi * turns)
    return phases[:, :rows, None] * fourier * phases[:, None, rows:]
