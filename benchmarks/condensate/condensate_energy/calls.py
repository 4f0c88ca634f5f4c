"""Inputs of the energy's workload, and its calls with the constants bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.condensate.condensate_energy import LAMBDA_COUPLING, MASS_SQ, RANK
from ivhl.ops.condensate.energy import make_condensate_energy

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.condensate.condensate_energy import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a condensate of noise, shape ``[n, n, n]``, complex128, of size 0.1."""
    shape = (size.n, size.n, size.n)
    return (0.1 * torch.randn(shape, dtype=torch.complex128, generator=generator),)


def energy(phi: torch.Tensor) -> torch.Tensor:
    """Return the energy per point from the formula, without axes, the real dtype of ``phi``."""
    modulus = phi.abs()
    total = MASS_SQ * (modulus**2).sum()
    total = total + 2.0 * LAMBDA_COUPLING / RANK * (modulus**RANK).sum()
    for axis in range(phi.ndim):
        total = total + ((phi.roll(-1, axis) - phi).abs() ** 2).sum()
    return total / phi.numel()


def make_energy(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``energy`` in real arithmetic, compiled by ``compiler``."""
    total = make_condensate_energy(compiler, rank=RANK)
    return lambda phi: total(phi, MASS_SQ, LAMBDA_COUPLING) / phi.numel()
