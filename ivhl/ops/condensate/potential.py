"""Potential of a condensate: gradient on an open grid, mass and interaction, summed.

The time evolution of ``ivhl.ops.condensate`` does not conserve it; it conserves the energy
(``ivhl.ops.condensate.energy``).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch

from ivhl.compile import get_compiled
from ivhl.ops.condensate.arguments import check_condensate, numbers_like
from ivhl.ops.condensate.interaction import power_of_density
from ivhl.ops.condensate.layouts import MAX_AXES, as_cube, planes_of_pairs, total_of
from ivhl.ops.words import fits_words, planes_of_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.ops.condensate.interaction import Power
    from ivhl.ops.condensate.layouts import Planes


def condensate_potential(
    phi: torch.Tensor, *, mass_sq: float, lambda_coupling: float, rank: int = 3
) -> torch.Tensor:
    """Return the potential, literally from the formula; see ``compute_condensate_potential``."""
    check_condensate(phi, rank, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
    modulus = phi.abs()
    potential = 0.5 * mass_sq * (modulus**2).sum()
    potential = potential + lambda_coupling / math.factorial(rank) * (modulus**rank).sum()
    for axis in range(phi.ndim):
        if phi.shape[axis] > 1:
            (slope,) = torch.gradient(phi, dim=axis)
            potential = potential + (slope.abs() ** 2).sum()
    return potential


def compute_condensate_potential(
    phi: torch.Tensor, mass_sq: float, lambda_coupling: float, rank: int = 3
) -> torch.Tensor:
    """Return ``sum |grad phi|^2 + m2/2 sum |phi|^2 + lam/rank! sum |phi|^rank``.

    The gradient is by finite differences: central inside, one-sided at the boundary, since the grid
    is open; 0 along an axis of one point. The time evolution does not conserve it.

    Args:
        phi: Condensate, one to three axes of any length, complex, any strides.
        mass_sq: Mass squared ``m2``, in inverse length squared.
        lambda_coupling: Strength ``lam`` of the interaction.
        rank: Power of ``|phi|`` in the interaction, an integer from 2 to 32.

    Returns:
        Potential, without axes, the real dtype of ``phi``.

    Raises:
        ValueError: If ``phi`` is not complex or has no or more than three axes, ``rank`` is not an
            integer from 2 to 32, or another parameter is not finite.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``compute_condensate_potential``.
    """
    check_condensate(phi, rank, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
    return _compiled_potential(rank)(phi, mass_sq, lambda_coupling)


def make_condensate_potential(
    compiler: Callable[..., Any], *, rank: int
) -> Callable[[torch.Tensor, float, float], torch.Tensor]:
    """Return ``compute_condensate_potential`` of one rank, compiled by ``compiler``.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.
        rank: Power of ``|phi|`` in the interaction.

    Returns:
        A function of a condensate, ``mass_sq`` and ``lambda_coupling``.
    """
    power = power_of_density(rank)

    def from_words(
        flat: torch.Tensor, words: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor
    ) -> torch.Tensor:
        return potential_planes(flat, planes_of_words(words), weights, ends, power)

    def from_pairs(
        flat: torch.Tensor, pairs: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor
    ) -> torch.Tensor:
        return potential_planes(flat, planes_of_pairs(pairs), weights, ends, power)

    by_words, by_pairs = compiler(from_words), compiler(from_pairs)

    def potential(phi: torch.Tensor, mass_sq: float, lambda_coupling: float) -> torch.Tensor:
        weights = numbers_like(phi, 0.5 * mass_sq, lambda_coupling / math.factorial(rank))
        if phi.numel() == 0:
            return weights.new_zeros(())
        phi = as_cube(phi)
        ends = _difference_weights(phi.shape[-1], weights.dtype, weights.device)
        pairs = torch.view_as_real(phi)
        flat = pairs.flatten(-2)
        if fits_words(phi):
            result: torch.Tensor = by_words(flat, phi.view(torch.float64), weights, ends)
        else:
            result = by_pairs(flat, pairs, weights, ends)
        return result

    return potential


def potential_planes(
    flat: torch.Tensor,
    planes: Planes,
    weights: torch.Tensor,
    slope_weights: torch.Tensor,
    power: Power,
) -> torch.Tensor:
    """Return the potential in real arithmetic.

    Differences treat real and imaginary part alike, so they need no separate planes: they are
    between numbers two apart on the last axis.

    Args:
        flat: Real and imaginary parts, alternating, shape ``[a, b, 2 c]``.
        planes: Real and imaginary part, shape ``[a, b, c]`` each.
        weights: ``m2/2`` and ``lam/rank!``, shape ``[2]``.
        slope_weights: Weights of differences along the last axis, shape ``[2, 2 c]``: first over
            two points, then over one; zero where a difference would reach into the next row.
        power: ``|phi|^(rank-2)`` of ``|phi|^2``.

    Returns:
        Potential, without axes.
    """
    re, im = planes
    density = re * re + im * im
    mass, interaction = weights.unbind()
    potential = total_of((mass + interaction * power(density)) * density)
    for axis in range(MAX_AXES - 1):
        potential = potential + _squared_differences(flat, axis, 1)
    # Along the last axis, differences run on into the next row, so that one long loop replaces one
    # loop per row. Only the last row has no next one.
    n_slabs, n_rows, width = flat.shape
    if width > 2:  # noqa: PLR2004  (one point has no difference)
        for line, shape in (
            (flat.reshape(-1), (n_slabs - 1, n_rows, width)),
            (flat[-1].reshape(-1), (1, n_rows - 1, width)),
        ):
            potential = potential + _squared_differences_run_on(line, shape, slope_weights)
    return potential + _squared_differences(flat[-1:, -1:], 2, 2)


def make_condensate_potential_planes(
    compiler: Callable[..., Any], *, rank: int
) -> Callable[..., torch.Tensor]:
    """Return the potential of real planes, for simulations that keep planes between steps.

    Args:
        compiler: Compiles a function for fixed shapes; the identity leaves it eager.
        rank: Power of ``|phi|`` in the interaction.

    Returns:
        A function of real and imaginary part, shape ``[2, a, b, c]``, ``mass_sq``,
        ``lambda_coupling`` and ``scale``. Compiled code multiplies the potential by ``scale``: pass
        1 over the number of points for the potential per point.
    """
    power = power_of_density(rank)

    def of_planes(planes: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        re, im = planes.unbind()
        density = re * re + im * im
        mass, interaction, scale = weights.unbind()
        potential = _total_by_rows((mass + interaction * power(density)) * density)
        for axis in range(1, 1 + MAX_AXES):
            if planes.shape[axis] > 1:
                potential = potential + _squared_differences_of_planes(planes, axis)
        return scale * potential

    total = compiler(of_planes)

    def potential(
        planes: torch.Tensor, mass_sq: float, lambda_coupling: float, scale: float = 1.0
    ) -> torch.Tensor:
        weights = numbers_like(
            planes, 0.5 * mass_sq, lambda_coupling / math.factorial(rank), scale
        )
        result: torch.Tensor = total(planes, weights)
        return result

    return potential


def _squared_differences_of_planes(planes: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the sum of squared differences of both planes, along an axis of at least two points."""
    n = planes.shape[axis]
    if n == 2:  # noqa: PLR2004  (both points have the same difference)
        slope = planes.narrow(axis, 1, 1) - planes.narrow(axis, 0, 1)
        return 2.0 * _total_by_rows(slope * slope)
    over_two = planes.narrow(axis, 2, n - 2) - planes.narrow(axis, 0, n - 2)
    # First and last difference in one loop: a loop costs more to start than its few points.
    ends: list[slice] = [slice(None)] * planes.ndim
    before = list(ends)
    ends[axis], before[axis] = slice(1, None, n - 2), slice(0, n - 1, n - 2)
    slope = planes[tuple(ends)] - planes[tuple(before)]
    # Few points: one loop that ends in a shuffle is faster than two without.
    return 0.25 * _total_by_rows(over_two * over_two) + (slope * slope).sum()


def _total_by_rows(x: torch.Tensor) -> torch.Tensor:
    # As in ``total_of``, rows add without a shuffle, but in two loops instead of three.
    return x.sum(dim=-2).sum()


def _squared_differences_run_on(
    line: torch.Tensor, shape: tuple[int, int, int], weights: torch.Tensor
) -> torch.Tensor:
    length = math.prod(shape)
    if length == 0:
        return line.new_zeros(())
    here = line[:length]
    once = (line[2 : length + 2] - here).reshape(shape)
    twice = (line[4 : length + 4] - here).reshape(shape)
    over_two, over_one = weights.unbind()
    return total_of(over_two * twice * twice + over_one * once * once)


def _squared_differences(flat: torch.Tensor, axis: int, step: int) -> torch.Tensor:
    """Return the sum of squared differences along an axis with points ``step`` numbers apart."""
    n = flat.shape[axis]
    if n == step:
        return flat.new_zeros(())
    over_two = flat.narrow(axis, 2 * step, n - 2 * step) - flat.narrow(axis, 0, n - 2 * step)
    first = flat.narrow(axis, step, step) - flat.narrow(axis, 0, step)
    last = flat.narrow(axis, n - step, step) - flat.narrow(axis, n - 2 * step, step)
    ends = total_of(first * first) + total_of(last * last)
    return 0.25 * total_of(over_two * over_two) + ends


@functools.lru_cache(maxsize=16)
def _difference_weights(n: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    # Not an inference tensor: it is cached, and later calls may want gradients.
    with torch.inference_mode(mode=False):
        place = torch.arange(n, device=device).repeat_interleave(2)
        over_one = (place == 0).to(dtype) + (place == n - 2).to(dtype)
        return torch.stack((0.25 * (place < n - 2).to(dtype), over_one))


@functools.cache
def _compiled_potential(rank: int) -> Callable[[torch.Tensor, float, float], torch.Tensor]:
    return make_condensate_potential(get_compiled(dynamic=True, fullgraph=True), rank=rank)
