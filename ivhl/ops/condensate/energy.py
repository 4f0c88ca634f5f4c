"""Energy of a condensate on a periodic grid, which its time evolution conserves."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from ivhl.compile import get_compiled
from ivhl.ops.condensate.arguments import check_condensate, numbers_like
from ivhl.ops.condensate.interaction import power_of_density
from ivhl.ops.condensate.layouts import (
    MAX_AXES,
    as_cube,
    planes_of_pairs,
    ring_of,
    rings_of_words,
    total_of,
)
from ivhl.ops.words import fits_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.ops.condensate.interaction import Power


def compute_condensate_energy(
    phi: torch.Tensor, mass_sq: float, lambda_coupling: float, rank: int = 3
) -> torch.Tensor:
    """Return the energy that the equation conserves.

    ``E = sum |D phi|^2 + m2 |phi|^2 + (2 lam / rank) |phi|^rank`` with forward differences ``D``
    along each axis of the periodic grid. Since ``D^dag D`` is minus the Laplacian of three points,
    the equation is ``i dphi/dt = dE/dphi*``.

    Args:
        phi: Condensate, one to three axes of any length, complex, any strides.
        mass_sq: Coefficient ``m2`` of ``phi`` in the equation.
        lambda_coupling: Strength ``lam`` of the interaction.
        rank: Power of ``|phi|``, an integer from 2 to 32; 4 is Gross-Pitaevskii.

    Returns:
        Energy, without axes, the real dtype of ``phi``.

    Raises:
        ValueError: If ``phi`` is not complex or has no or more than three axes, ``rank`` is not an
            integer from 2 to 32, or another parameter is not finite.

    Source:
        Bao, Jaksch and Markowich, J. Comput. Phys. 187, 318 (2003), eq. (2.5), on a grid.
    """
    check_condensate(phi, rank, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
    return _compiled_energy(rank)(phi, mass_sq, lambda_coupling)


def make_condensate_energy(
    compiler: Callable[..., Any], *, rank: int
) -> Callable[[torch.Tensor, float, float], torch.Tensor]:
    """Return ``compute_condensate_energy`` of one rank, compiled by ``compiler``.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.
        rank: Power of ``|phi|`` in the interaction.

    Returns:
        A function of a condensate, ``mass_sq`` and ``lambda_coupling``.
    """
    power = power_of_density(rank)

    def from_words(words: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return energy_of_rings(*rings_of_words(words), weights, power)

    def from_pairs(pairs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        re, im = planes_of_pairs(pairs)
        return energy_of_rings(ring_of(re), ring_of(im), weights, power)

    by_words, by_pairs = compiler(from_words), compiler(from_pairs)

    def energy(phi: torch.Tensor, mass_sq: float, lambda_coupling: float) -> torch.Tensor:
        weights = numbers_like(phi, mass_sq, 2.0 * lambda_coupling / rank)
        if phi.numel() == 0:
            return weights.new_zeros(())
        phi = as_cube(phi)
        if fits_words(phi):
            result: torch.Tensor = by_words(phi.view(torch.float64), weights)
        else:
            result = by_pairs(torch.view_as_real(phi), weights)
        return result

    return energy


def energy_of_rings(
    ring_re: torch.Tensor, ring_im: torch.Tensor, weights: torch.Tensor, power: Power
) -> torch.Tensor:
    """Return the energy in real arithmetic.

    Args:
        ring_re: Real part, shape ``[a, b, c + 2]``, with a halo of one point along the last axis.
        ring_im: Imaginary part, shape of ``ring_re``.
        weights: ``m2`` and ``2 lam / rank``, shape ``[2]``.
        power: ``|phi|^(rank-2)`` of ``|phi|^2``.

    Returns:
        Energy, without axes.
    """
    re, im = ring_re[..., 1:-1], ring_im[..., 1:-1]
    density = re * re + im * im
    mass, interaction = weights.unbind()
    energy = (mass + interaction * power(density)) * density
    for plane, ring in ((re, ring_re), (im, ring_im)):
        for axis in range(MAX_AXES - 1):
            difference = plane.roll(-1, axis) - plane
            energy = energy + difference * difference
        difference = ring[..., 2:] - ring[..., 1:-1]
        energy = energy + difference * difference
    return total_of(energy)


@functools.cache
def _compiled_energy(rank: int) -> Callable[[torch.Tensor, float, float], torch.Tensor]:
    return make_condensate_energy(get_compiled(dynamic=True, fullgraph=True), rank=rank)
