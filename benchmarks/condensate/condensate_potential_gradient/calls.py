"""Inputs of the potential's gradient, and the gradient over either form of the potential.

The gradient is PyTorch's for a real function of complex numbers, the direction of steepest ascent:
``dV/d(re) + i dV/d(im)``, that is ``2 dV/d(conj phi)``.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.condensate.condensate_potential_gradient import LAMBDA_COUPLING, MASS_SQ, RANK
from ivhl.ops.condensate.potential import condensate_potential, make_condensate_potential

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.condensate.condensate_potential_gradient import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a condensate of noise, shape ``[n, n, n]``, complex128, of size 0.1."""
    shape = (size.n, size.n, size.n)
    return (0.1 * torch.randn(shape, dtype=torch.complex128, generator=generator),)


def potential(phi: torch.Tensor) -> torch.Tensor:
    """Return the potential of all points, literally from the formula, without axes."""
    return condensate_potential(phi, mass_sq=MASS_SQ, lambda_coupling=LAMBDA_COUPLING, rank=RANK)


def gradient(phi: torch.Tensor) -> torch.Tensor:
    """Return the gradient of ``potential`` by the condensate, shape and dtype of ``phi``."""
    return _gradient_of(potential, phi)


def make_gradient(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``gradient`` with ``potential`` compiled unchanged, with its backward pass."""
    compiled = compiler(potential)
    return lambda phi: _gradient_of(compiled, phi)


def make_real_gradient(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``gradient`` with ``potential`` in real arithmetic, both passes compiled."""
    total = make_condensate_potential(compiler, rank=RANK)
    return lambda phi: _gradient_of(lambda leaf: total(leaf, MASS_SQ, LAMBDA_COUPLING), phi)


def make_adjoint_gradient(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``gradient`` without autograd: ``adjoint_planes``, compiled."""
    planes = compiler(adjoint_planes)

    def slope(phi: torch.Tensor) -> torch.Tensor:
        neighbours = _neighbours(phi.shape[0], phi.device)
        return torch.complex(*planes(phi.real.contiguous(), phi.imag.contiguous(), neighbours))

    return slope


def adjoint_planes(
    re: torch.Tensor, im: torch.Tensor, neighbours: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return real and imaginary part of the gradient, derived by hand.

    The differences and their adjoint are one stencil along each axis: ``f_j - (f_(j+2) + f_(j-2)) /
    2``, where a neighbour beyond the boundary is the point itself, plus ``2 (f_j - f_k)`` for the
    two points ``j`` and ``k`` at each boundary.

    Args:
        re: Real part, shape ``[n, n, n]``.
        im: Imaginary part, shape of ``re``.
        neighbours: Indices of ``j + 2``, ``j - 2`` and ``k`` for each ``j``, shape ``[3, n]``.

    Returns:
        Two planes of the shape of ``re``.
    """
    above, below, partner = neighbours.unbind()
    own = MASS_SQ + 3.0 * 3.0  # per axis: 1 from central differences, 2 from the boundary
    rate = own + LAMBDA_COUPLING / math.factorial(RANK - 1) * (re * re + im * im).sqrt()
    parts = []
    for f in (re, im):
        total = rate * f
        for axis in range(2):
            far = f.index_select(axis, above) + f.index_select(axis, below)
            total = total - 0.5 * far - 2.0 * f.index_select(axis, partner)
        # Not by index along the last axis: Inductor would not vectorise the innermost loop.
        first, inner, last = f[..., :2], f[..., 2:-2], f[..., -2:]
        halo = torch.cat((first, f, last), dim=2)
        swapped = torch.cat((first.flip(2), inner, last.flip(2)), dim=2)
        parts.append(total - 0.5 * (halo[..., 4:] + halo[..., :-4]) - 2.0 * swapped)
    return parts[0], parts[1]


@functools.lru_cache(maxsize=16)
def _neighbours(n: int, device: torch.device) -> torch.Tensor:
    j = torch.arange(n, device=device)
    above, below = torch.where(j + 2 < n, j + 2, j), torch.where(j < 2, j, j - 2)  # noqa: PLR2004
    partner = torch.where(j < 2, 1 - j, torch.where(j < n - 2, j, 2 * n - 3 - j))  # noqa: PLR2004
    return torch.stack((above, below, partner))


def _gradient_of(
    function: Callable[[torch.Tensor], torch.Tensor], phi: torch.Tensor
) -> torch.Tensor:
    leaf = phi.detach().requires_grad_()
    (slope,) = torch.autograd.grad(function(leaf), leaf)
    return slope
