"""One explicit Euler step of a condensate on a periodic grid: what iVHL does, and unstable."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from ivhl.compile import get_compiled
from ivhl.ops.condensate.arguments import check_condensate, numbers_like
from ivhl.ops.condensate.interaction import power_of_density
from ivhl.ops.condensate.layouts import (
    MAX_AXES,
    on_cube,
    pairs_of_planes,
    planes_of_pairs,
    ring_of,
    rings_of_words,
)
from ivhl.ops.words import words_of_planes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.ops.condensate.interaction import Power
    from ivhl.ops.condensate.layouts import Planes


def condensate_euler(
    phi: torch.Tensor, *, dt: float, mass_sq: float, lambda_coupling: float, rank: int = 3
) -> torch.Tensor:
    """Return one Euler step, literally from the formula; see ``evolve_condensate_euler``."""
    check_condensate(phi, rank, dt=dt, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
    laplacian = torch.zeros_like(phi)
    for axis in range(phi.ndim):
        laplacian = laplacian + phi.roll(1, axis) + phi.roll(-1, axis) - 2.0 * phi
    interaction = lambda_coupling * phi.abs() ** (rank - 2) * phi
    return phi - 1j * dt * (-laplacian + mass_sq * phi + interaction)


def evolve_condensate_euler(
    phi: torch.Tensor, dt: float, mass_sq: float, lambda_coupling: float, rank: int = 3
) -> torch.Tensor:
    """Return the condensate after one step of explicit Euler, which is unstable at every ``dt``.

    ``phi' = phi - i dt (-L phi + m2 phi + lam |phi|^(rank-2) phi)``. A wave of energy ``E`` grows by
    ``sqrt(1 + (dt E)^2) > 1`` in each step, for every ``dt`` but zero. With the constants of the
    original, ``dt = 0.01, m2 = -0.5, lam = 0.1, rank = 3``, and noise of size 0.1 on ``16^3``
    points, ``sum |phi|^2`` grows by a factor of 1.5 in 100 steps, 4.7 in 300 and 6500 in 1000.
    ``evolve_condensate_gp`` conserves it.

    Args:
        phi: Condensate, one to three periodic axes of any length, complex, any strides.
        dt: Time step.
        mass_sq: Coefficient ``m2`` of ``phi`` in the equation.
        lambda_coupling: Strength ``lam`` of the interaction.
        rank: Power of ``|phi|`` in the energy, an integer from 2 to 32.

    Returns:
        Condensate, shape and dtype of ``phi``, contiguous.

    Raises:
        ValueError: If ``phi`` is not complex or has no or more than three axes, ``rank`` is not an
            integer from 2 to 32, or another parameter is not finite.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``evolve_condensate_gp``.
    """
    check_condensate(phi, rank, dt=dt, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
    return _compiled_euler(rank)(phi, dt, mass_sq, lambda_coupling)


def make_condensate_euler(
    compiler: Callable[..., Any], *, rank: int
) -> Callable[[torch.Tensor, float, float, float], torch.Tensor]:
    """Return ``evolve_condensate_euler`` of one rank, compiled by ``compiler``.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.
        rank: Power of ``|phi|`` in the energy.

    Returns:
        A function of a condensate, ``dt``, ``mass_sq`` and ``lambda_coupling``.
    """
    power = power_of_density(rank)

    def on_words(words: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
        return words_of_planes(*euler_of_rings(*rings_of_words(words), rates, power))

    def on_pairs(pairs: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
        re, im = planes_of_pairs(pairs)
        return pairs_of_planes(*euler_of_rings(ring_of(re), ring_of(im), rates, power))

    by_words, by_pairs = compiler(on_words), compiler(on_pairs)

    def euler(
        phi: torch.Tensor, dt: float, mass_sq: float, lambda_coupling: float
    ) -> torch.Tensor:
        rates = _euler_rates(phi, dt, mass_sq, lambda_coupling)
        if phi.numel() == 0:
            return phi.clone()
        return on_cube(phi, by_words, by_pairs, rates)

    return euler


def make_condensate_euler_planes(
    compiler: Callable[..., Any], *, rank: int
) -> Callable[[torch.Tensor, float, float, float], torch.Tensor]:
    """Return the Euler step of real planes, for simulations that keep planes between steps.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.
        rank: Power of ``|phi|`` in the energy.

    Returns:
        A function of real and imaginary part, shape ``[2, a, b, c]``, ``dt``, ``mass_sq`` and
        ``lambda_coupling``, which returns both parts one step later in the same shape.
    """
    power = power_of_density(rank)

    def on_planes(planes: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
        re, im = planes.unbind()
        return torch.stack(euler_planes(re, im, (ring_of(re), ring_of(im)), rates, power))

    step = compiler(on_planes)

    def euler(
        planes: torch.Tensor, dt: float, mass_sq: float, lambda_coupling: float
    ) -> torch.Tensor:
        stepped: torch.Tensor = step(planes, _euler_rates(planes, dt, mass_sq, lambda_coupling))
        return stepped

    return euler


def euler_of_rings(
    ring_re: torch.Tensor, ring_im: torch.Tensor, rates: torch.Tensor, power: Power
) -> Planes:
    """Return real and imaginary part after one Euler step, read from tensors with a halo.

    Args:
        ring_re: Real part, shape ``[a, b, c + 2]``, with a halo of one point along the last axis.
        ring_im: Imaginary part, shape of ``ring_re``.
        rates: ``dt``, ``dt (m2 + 6)`` and ``dt lam``, shape ``[3]``.
        power: ``|phi|^(rank-2)`` of ``|phi|^2``.

    Returns:
        Two planes of shape ``[a, b, c]``.
    """
    # Only the rings are in memory: reading everything from them keeps each load contiguous.
    re, im = ring_re[..., 1:-1], ring_im[..., 1:-1]
    return euler_planes(re, im, (ring_re, ring_im), rates, power)


def euler_planes(
    re: torch.Tensor, im: torch.Tensor, rings: Planes, rates: torch.Tensor, power: Power
) -> Planes:
    """Return real and imaginary part after one Euler step.

    Args:
        re: Real part, shape ``[a, b, c]``.
        im: Imaginary part, shape of ``re``.
        rings: The same two with a halo along the last axis, shape ``[a, b, c + 2]``.
        rates: ``dt``, ``dt (m2 + 6)`` and ``dt lam``, shape ``[3]``.
        power: ``|phi|^(rank-2)`` of ``|phi|^2``.

    Returns:
        Two planes of the shape of ``re``.
    """
    dt, own, interaction = rates.unbind()
    rate = own + interaction * power(re * re + im * im)
    change_re, change_im = (
        rate * plane - dt * (ring[..., 2:] + ring[..., :-2] + _outer_neighbours(plane))
        for plane, ring in zip((re, im), rings, strict=True)
    )
    return re + change_im, im - change_re


def _euler_rates(
    phi: torch.Tensor, dt: float, mass_sq: float, lambda_coupling: float
) -> torch.Tensor:
    # The diagonal of minus the Laplacian is 2 per axis, including axes of one point.
    return numbers_like(phi, dt, dt * (mass_sq + 2.0 * MAX_AXES), dt * lambda_coupling)


def _outer_neighbours(x: torch.Tensor) -> torch.Tensor:
    return x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)


@functools.cache
def _compiled_euler(rank: int) -> Callable[[torch.Tensor, float, float, float], torch.Tensor]:
    return make_condensate_euler(get_compiled(dynamic=True, fullgraph=True), rank=rank)
