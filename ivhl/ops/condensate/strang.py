"""Time evolution of a condensate by Strang's splitting.

One step is half a step of the potential, a whole step of the Laplacian ``L``, and half a step of the
potential. Each part is solved exactly, so the norm is conserved and the error is of second order in
``dt``. Short steps apply ``L`` by a stencil (``hops``), long ones by Fourier transforms (``waves``).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from ivhl.compile import get_compiled
from ivhl.ops.condensate.arguments import check_condensate, check_integer
from ivhl.ops.condensate.hops import STENCIL_SIZES, make_condensate_hops, stencil_size
from ivhl.ops.condensate.waves import make_condensate_strang

if TYPE_CHECKING:
    from collections.abc import Callable


def evolve_condensate_gp(  # noqa: PLR0917  (the signature of the original, and n_steps)
    phi: torch.Tensor,
    dt: float,
    mass_sq: float,
    lambda_coupling: float,
    rank: int = 3,
    n_steps: int = 1,
) -> torch.Tensor:
    """Return the condensate after ``n_steps`` steps of Strang's splitting.

    A step rotates the phase of every point by half a step of the potential, that of every wave by a
    whole step of the Laplacian's symbol ``sum over axes of 2 - 2 cos(2 pi k / n)``, and that of
    every point again by half a step; adjacent half steps are merged. Each rotation conserves the
    norm, the error is of second order in ``dt``, and a step of ``-dt`` undoes one of ``dt``. For a
    short step a stencil that is exact to rounding rotates the waves (``hop_amplitudes``), for a
    longer one two Fourier transforms.

    Args:
        phi: Condensate, one to three periodic axes of any length, complex, any strides.
        dt: Time step, of either sign.
        mass_sq: Coefficient ``m2`` of ``phi`` in the equation.
        lambda_coupling: Strength ``lam`` of the interaction.
        rank: Power of ``|phi|`` in the energy, an integer from 2 to 32; 4 is Gross-Pitaevskii.
        n_steps: Number of steps, at least 1.

    Returns:
        Condensate, shape and dtype of ``phi``, contiguous.

    Raises:
        ValueError: If ``phi`` is not complex or has no or more than three axes, ``rank`` is not an
            integer from 2 to 32, ``n_steps`` is below 1, or another parameter is not finite.

    Source:
        Bao, Jaksch and Markowich, J. Comput. Phys. 187, 318 (2003), eq. (3.5); Strang, SIAM J.
        Numer. Anal. 5, 506 (1968).
    """
    check_condensate(phi, rank, dt=dt, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
    check_integer("n_steps", n_steps, at_least=1)
    n_amplitudes = stencil_size(dt, phi.dtype)
    if n_amplitudes is None:
        evolve = _compiled_strang(rank)
    elif _has_wrong_backward(phi, n_amplitudes):
        evolve = make_condensate_hops(
            lambda function: function, rank=rank, n_amplitudes=n_amplitudes
        )
    else:
        evolve = _compiled_hops(rank, n_amplitudes)
    return evolve(phi, dt, mass_sq, lambda_coupling, n_steps)


def _has_wrong_backward(phi: torch.Tensor, n_amplitudes: int) -> bool:
    # Compiled by 2.5.1 or 2.6.0 for dynamic shapes, the backward pass of the longer stencil was NaN,
    # when a short axis was rolled by more than it has (docs/findings.md). Of this gradient, compiled
    # as a whole, only 2.15.0 is tested.
    release = tuple(int(number) for number in torch.__version__.split(".")[:2])
    wants_gradient = phi.requires_grad and torch.is_grad_enabled()
    return release < (2, 15) and n_amplitudes > STENCIL_SIZES[0] and wants_gradient


@functools.cache
def _compiled_hops(
    rank: int, n_amplitudes: int
) -> Callable[[torch.Tensor, float, float, float, int], torch.Tensor]:
    return make_condensate_hops(
        get_compiled(dynamic=True, fullgraph=True), rank=rank, n_amplitudes=n_amplitudes
    )


@functools.cache
def _compiled_strang(
    rank: int,
) -> Callable[[torch.Tensor, float, float, float, int], torch.Tensor]:
    return make_condensate_strang(get_compiled(dynamic=True, fullgraph=True), rank=rank)
