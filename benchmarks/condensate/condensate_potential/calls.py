"""Inputs of the potential's workload, and its calls with the constants bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.condensate.condensate_potential import LAMBDA_COUPLING, MASS_SQ, RANK
from ivhl.ops.condensate.potential import (
    condensate_potential,
    make_condensate_potential,
    make_condensate_potential_planes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.condensate.condensate_potential import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a condensate of noise, shape ``[n, n, n]``, complex128, of size 0.1."""
    shape = (size.n, size.n, size.n)
    return (0.1 * torch.randn(shape, dtype=torch.complex128, generator=generator),)


def potential(phi: torch.Tensor) -> torch.Tensor:
    """Return the potential per point, without axes, the real dtype of ``phi``."""
    total = condensate_potential(phi, mass_sq=MASS_SQ, lambda_coupling=LAMBDA_COUPLING, rank=RANK)
    return total / phi.numel()


def make_potential(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``potential`` in real arithmetic, compiled by ``compiler``."""
    total = make_condensate_potential(compiler, rank=RANK)

    def per_point(phi: torch.Tensor) -> torch.Tensor:
        return total(phi, MASS_SQ, LAMBDA_COUPLING) / phi.numel()

    return per_point


def make_planes_potential(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``potential`` of planes, shape ``[2, n, n, n]``, compiled by ``compiler``."""
    total = make_condensate_potential_planes(compiler, rank=RANK)

    def per_point(planes: torch.Tensor) -> torch.Tensor:
        return total(planes, MASS_SQ, LAMBDA_COUPLING, scale=2.0 / planes.numel())

    return per_point


def as_planes(phi: torch.Tensor) -> tuple[torch.Tensor]:
    """Return real and imaginary part as one input, shape ``[2, n, n, n]``."""
    return (torch.stack((phi.real, phi.imag)),)
