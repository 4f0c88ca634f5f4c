"""Inputs of the Euler workload, and its calls with the constants bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.condensate.gp_euler import DT, LAMBDA_COUPLING, MASS_SQ, RANK
from ivhl.ops.condensate.euler import (
    condensate_euler,
    make_condensate_euler,
    make_condensate_euler_planes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.condensate.gp_euler import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a condensate of noise, shape ``[n, n, n]``, complex128, of size 0.1."""
    shape = (size.n, size.n, size.n)
    return (0.1 * torch.randn(shape, dtype=torch.complex128, generator=generator),)


def step(phi: torch.Tensor) -> torch.Tensor:
    """Return the condensate one step later, shape and dtype of ``phi``."""
    return condensate_euler(
        phi, dt=DT, mass_sq=MASS_SQ, lambda_coupling=LAMBDA_COUPLING, rank=RANK
    )


def make_step(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``step`` in real arithmetic, compiled by ``compiler``."""
    euler = make_condensate_euler(compiler, rank=RANK)

    def one_step(phi: torch.Tensor) -> torch.Tensor:
        return euler(phi, DT, MASS_SQ, LAMBDA_COUPLING)

    return one_step


def make_planes_step(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the step from planes to planes, shape ``[2, n, n, n]``, compiled by ``compiler``."""
    euler = make_condensate_euler_planes(compiler, rank=RANK)

    def one_step(planes: torch.Tensor) -> torch.Tensor:
        return euler(planes, DT, MASS_SQ, LAMBDA_COUPLING)

    return one_step


def as_planes(phi: torch.Tensor) -> tuple[torch.Tensor]:
    """Return real and imaginary part as one input, shape ``[2, n, n, n]``."""
    return (torch.stack((phi.real, phi.imag)),)


def as_complex(planes: torch.Tensor) -> torch.Tensor:
    """Return the condensate of both planes."""
    return torch.complex(*planes.unbind())
