"""Potential, energy and time evolution of a condensate on a grid of spacing 1.

The equation is ``i dphi/dt = -L phi + m2 phi + lam |phi|^(rank-2) phi`` on a periodic grid of one to
three axes, where ``L`` is the Laplacian of three points per axis. It conserves
``compute_condensate_energy``, but not ``compute_condensate_potential``, whose stencil, boundary and
weights differ.

Compiled functions take a ``complex64`` as words (``ivhl.ops.words``). Where a gradient is wanted,
and in ``complex128``, they take real and imaginary part as a last axis of two.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.compile import get_compiled
from ivhl.ops.gross_pitaevskii import (
    hop,
    hop_amplitude,
    hop_amplitudes,
    power_of_density,
)
from ivhl.ops.words import fits_words, halves_of_words, planes_of_words, words_of_planes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.ops.gross_pitaevskii import Power

    Planes = tuple[torch.Tensor, torch.Tensor]

MAX_AXES: Final = 3
# A power of the density is a chain of multiplications; much longer ones overflow and do not compile.
MAX_RANK: Final = 32

# Numbers of amplitudes that a compiled stencil may have. Each is compiled separately, so a sweep of
# time steps must not need many. A step that needs more than the last uses Fourier transforms.
STENCIL_SIZES: Final = (4, 8)


# --- potential -----------------------------------------------------------------------------------


def condensate_potential(
    phi: torch.Tensor, *, mass_sq: float, lambda_coupling: float, rank: int = 3
) -> torch.Tensor:
    """Return the potential, literally from the formula; see ``compute_condensate_potential``."""
    _check(phi, rank, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
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
    is open; 0 along an axis of one point. The equation of this module does not conserve it.

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
    _check(phi, rank, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
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
        return potential_planes(flat, _from_pairs(pairs), weights, ends, power)

    by_words, by_pairs = compiler(from_words), compiler(from_pairs)

    def potential(phi: torch.Tensor, mass_sq: float, lambda_coupling: float) -> torch.Tensor:
        weights = _numbers(phi, 0.5 * mass_sq, lambda_coupling / math.factorial(rank))
        if phi.numel() == 0:
            return weights.new_zeros(())
        phi = _as_cube(phi)
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
    potential = _total((mass + interaction * power(density)) * density)
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
        weights = _numbers(planes, 0.5 * mass_sq, lambda_coupling / math.factorial(rank), scale)
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
    # As in ``_total``, rows add without a shuffle, but in two loops instead of three.
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
    return _total(over_two * twice * twice + over_one * once * once)


def _squared_differences(flat: torch.Tensor, axis: int, step: int) -> torch.Tensor:
    """Return the sum of squared differences along an axis with points ``step`` numbers apart."""
    n = flat.shape[axis]
    if n == step:
        return flat.new_zeros(())
    over_two = flat.narrow(axis, 2 * step, n - 2 * step) - flat.narrow(axis, 0, n - 2 * step)
    first = flat.narrow(axis, step, step) - flat.narrow(axis, 0, step)
    last = flat.narrow(axis, n - step, step) - flat.narrow(axis, n - 2 * step, step)
    ends = _total(first * first) + _total(last * last)
    return 0.25 * _total(over_two * over_two) + ends


@functools.lru_cache(maxsize=16)
def _difference_weights(n: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    # Not an inference tensor: it is cached, and later calls may want gradients.
    with torch.inference_mode(mode=False):
        place = torch.arange(n, device=device).repeat_interleave(2)
        over_one = (place == 0).to(dtype) + (place == n - 2).to(dtype)
        return torch.stack((0.25 * (place < n - 2).to(dtype), over_one))


# --- energy --------------------------------------------------------------------------------------


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
    _check(phi, rank, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
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
        return energy_of_rings(*_rings_from_words(words), weights, power)

    def from_pairs(pairs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        re, im = _from_pairs(pairs)
        return energy_of_rings(_ring(re), _ring(im), weights, power)

    by_words, by_pairs = compiler(from_words), compiler(from_pairs)

    def energy(phi: torch.Tensor, mass_sq: float, lambda_coupling: float) -> torch.Tensor:
        weights = _numbers(phi, mass_sq, 2.0 * lambda_coupling / rank)
        if phi.numel() == 0:
            return weights.new_zeros(())
        phi = _as_cube(phi)
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
    return _total(energy)


# --- explicit Euler ------------------------------------------------------------------------------


def condensate_euler(
    phi: torch.Tensor, *, dt: float, mass_sq: float, lambda_coupling: float, rank: int = 3
) -> torch.Tensor:
    """Return one Euler step, literally from the formula; see ``evolve_condensate_euler``."""
    _check(phi, rank, dt=dt, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
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
    _check(phi, rank, dt=dt, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
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
        return words_of_planes(*euler_of_rings(*_rings_from_words(words), rates, power))

    def on_pairs(pairs: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
        re, im = _from_pairs(pairs)
        return _to_pairs(*euler_of_rings(_ring(re), _ring(im), rates, power))

    by_words, by_pairs = compiler(on_words), compiler(on_pairs)

    def euler(
        phi: torch.Tensor, dt: float, mass_sq: float, lambda_coupling: float
    ) -> torch.Tensor:
        rates = _euler_rates(phi, dt, mass_sq, lambda_coupling)
        if phi.numel() == 0:
            return phi.clone()
        return _on_cube(phi, by_words, by_pairs, rates)

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
        return torch.stack(euler_planes(re, im, (_ring(re), _ring(im)), rates, power))

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
    return _numbers(phi, dt, dt * (mass_sq + 2.0 * MAX_AXES), dt * lambda_coupling)


def _outer_neighbours(x: torch.Tensor) -> torch.Tensor:
    return x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)


# --- Strang splitting ----------------------------------------------------------------------------


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
    _check(phi, rank, dt=dt, mass_sq=mass_sq, lambda_coupling=lambda_coupling)
    _check_whole("n_steps", n_steps, at_least=1)
    n_amplitudes = stencil_size(dt, phi.dtype)
    if n_amplitudes is None:
        evolve = _compiled_strang(rank)
    elif _has_wrong_backward(phi, n_amplitudes):
        evolve = make_condensate_hops(_as_is, rank=rank, n_amplitudes=n_amplitudes)
    else:
        evolve = _compiled_hops(rank, n_amplitudes)
    return evolve(phi, dt, mass_sq, lambda_coupling, n_steps)


def _has_wrong_backward(phi: torch.Tensor, n_amplitudes: int) -> bool:
    # Compiled by 2.5.1 or 2.6.0 for dynamic shapes, the backward pass of the longer stencil is NaN.
    # It is right for a fixed shape, for the shorter stencil, and on 2.15.0. No other was tested.
    release = tuple(int(number) for number in torch.__version__.split(".")[:2])
    wants_gradient = phi.requires_grad and torch.is_grad_enabled()
    return release < (2, 15) and n_amplitudes > STENCIL_SIZES[0] and wants_gradient


@functools.lru_cache(maxsize=256)
def stencil_size(dt: float, dtype: torch.dtype) -> int | None:
    """Return the number of amplitudes in the stencil of a time step, or ``None`` if too many.

    Args:
        dt: Time step.
        dtype: Complex dtype of the condensate.

    Returns:
        The first of ``STENCIL_SIZES`` that is exact to rounding.
    """
    if abs(dt) > 1.0:
        return None
    needed = len(hop_amplitudes(dt, precision=torch.finfo(dtype).eps / 16.0))
    return next((size for size in STENCIL_SIZES if size >= needed), None)


def make_condensate_hops(
    compiler: Callable[..., Any], *, rank: int, n_amplitudes: int
) -> Callable[[torch.Tensor, float, float, float, int], torch.Tensor]:
    """Return ``evolve_condensate_gp`` with a stencil, compiled by ``compiler``.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.
        rank: Power of ``|phi|`` in the energy.
        n_amplitudes: Reach of the stencil plus one; see ``stencil_size``.

    Returns:
        A function of a condensate, ``dt``, ``mass_sq``, ``lambda_coupling`` and ``n_steps``.
    """
    power = power_of_density(rank)

    def first_words(words: torch.Tensor, rates: torch.Tensor) -> Planes:
        return turn_planes(*planes_of_words(words), rates, power)

    def first_pairs(pairs: torch.Tensor, rates: torch.Tensor) -> Planes:
        return turn_planes(*_from_pairs(pairs), rates, power)

    def step(
        re: torch.Tensor, im: torch.Tensor, rates: torch.Tensor, amplitudes: torch.Tensor
    ) -> Planes:
        return turn_planes(*hop(re, im, amplitudes.unbind()), rates, power)

    def last_words(
        re: torch.Tensor, im: torch.Tensor, rates: torch.Tensor, amplitudes: torch.Tensor
    ) -> torch.Tensor:
        return words_of_planes(*step(re, im, rates, amplitudes))

    def last_pairs(
        re: torch.Tensor, im: torch.Tensor, rates: torch.Tensor, amplitudes: torch.Tensor
    ) -> torch.Tensor:
        return _to_pairs(*step(re, im, rates, amplitudes))

    by_words = compiler(first_words), compiler(last_words)
    by_pairs = compiler(first_pairs), compiler(last_pairs)
    middle = compiler(step)

    def evolve(
        phi: torch.Tensor, dt: float, mass_sq: float, lambda_coupling: float, n_steps: int
    ) -> torch.Tensor:
        if phi.numel() == 0:
            return phi.clone()
        # The diagonal of minus the Laplacian, 2 per axis, goes into the potential, not the stencil.
        rates = dt * (mass_sq + 2.0 * MAX_AXES), dt * lambda_coupling
        half, whole = _numbers(phi, *(0.5 * rate for rate in rates)), _numbers(phi, *rates)
        amplitudes = _numbers(phi, *(hop_amplitude(dt, order) for order in range(n_amplitudes)))
        cube = _as_cube(phi)
        if fits_words(cube):
            first, last = by_words
            re, im = first(cube.view(torch.float64), half)
        else:
            first, last = by_pairs
            re, im = first(torch.view_as_real(cube), half)
        for _ in range(n_steps - 1):
            re, im = middle(re, im, whole, amplitudes)
        return _as_complex(last(re, im, half, amplitudes)).reshape(phi.shape)

    return evolve


def make_condensate_strang(
    compiler: Callable[..., Any], *, rank: int
) -> Callable[[torch.Tensor, float, float, float, int], torch.Tensor]:
    """Return ``evolve_condensate_gp`` with Fourier transforms, the rest compiled by ``compiler``.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.
        rank: Power of ``|phi|`` in the energy.

    Returns:
        A function of a condensate, ``dt``, ``mass_sq``, ``lambda_coupling`` and ``n_steps``.
    """
    power = power_of_density(rank)

    def turn_words(words: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
        return words_of_planes(*turn_planes(*planes_of_words(words), rates, power))

    def turn_pairs(pairs: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
        return _to_pairs(*turn_planes(*_from_pairs(pairs), rates, power))

    def disperse_words(
        words: torch.Tensor, outer: torch.Tensor, inner: torch.Tensor
    ) -> torch.Tensor:
        return words_of_planes(*disperse_planes(*planes_of_words(words), outer, inner))

    def disperse_pairs(
        pairs: torch.Tensor, outer: torch.Tensor, inner: torch.Tensor
    ) -> torch.Tensor:
        return _to_pairs(*disperse_planes(*_from_pairs(pairs), outer, inner))

    turn = compiler(turn_words), compiler(turn_pairs)
    disperse = compiler(disperse_words), compiler(disperse_pairs)

    def evolve(
        phi: torch.Tensor, dt: float, mass_sq: float, lambda_coupling: float, n_steps: int
    ) -> torch.Tensor:
        if phi.numel() == 0:
            return phi.clone()
        rates = dt * mass_sq, dt * lambda_coupling
        half, whole = _numbers(phi, *(0.5 * rate for rate in rates)), _numbers(phi, *rates)
        cube = _as_cube(phi)
        outer, inner = dispersion(cube, dt)
        cube = _on_cube(cube, *turn, half)
        for number in range(n_steps):
            waves = _on_cube(torch.fft.fftn(cube), *disperse, outer, inner)
            # ``outer`` contains the scale of the inverse transform.
            cube = torch.fft.ifftn(waves, norm="forward")
            cube = _on_cube(cube, *turn, half if number == n_steps - 1 else whole)
        return cube.reshape(phi.shape)

    return evolve


def dispersion(phi: torch.Tensor, dt: float) -> Planes:
    """Return the phase rotation of every wave in a time ``dt``, as coefficients of shears.

    A rotation by ``a`` is three shears: ``x -= tan(a/2) y; y += sin(a) x; x -= tan(a/2) y``. A shear
    conserves area for any coefficient. So coefficients that are rounded once and used in every step
    do not make a wave grow or decay; a rounded ``exp(i a)`` would. Rotations by more than a quarter
    turn become smaller rotations and a change of sign.

    Args:
        phi: Condensate, shape ``[a, b, c]``.
        dt: Time step.

    Returns:
        For the first two axes tangent, sine, and sign divided by the number of points, shape
        ``[3, a, b, 1]``; for the last axis tangent, sine and sign, shape ``[3, c]``. Each is
        computed in float64 and rounded once to the real dtype of ``phi``.
    """

    def shears(angle: torch.Tensor) -> torch.Tensor:
        half_turns = (angle / math.pi).round()
        rest = angle - math.pi * half_turns
        return torch.stack((torch.tan(0.5 * rest), torch.sin(rest), 1.0 - 2.0 * (half_turns % 2)))

    first, second, last = (
        -4.0
        * dt
        * torch.sin(math.pi / n * torch.arange(n, dtype=torch.float64, device=phi.device)).square()
        for n in phi.shape
    )
    outer = shears((first[:, None] + second)[..., None])
    outer[2] /= phi.numel()
    return outer.to(phi.real.dtype), shears(last).to(phi.real.dtype)


def disperse_planes(
    re: torch.Tensor, im: torch.Tensor, outer: torch.Tensor, inner: torch.Tensor
) -> Planes:
    """Rotate the phase of every wave by the shears of ``dispersion``.

    Args:
        re: Real part, shape ``[a, b, c]``.
        im: Imaginary part, shape of ``re``.
        outer: Shape ``[3, a, b, 1]``.
        inner: Shape ``[3, c]``.

    Returns:
        Two planes of the shape of ``re``.
    """
    outer_tangent, outer_sine, outer_sign = outer.unbind()
    inner_tangent, inner_sine, inner_sign = inner.unbind()
    for tangent, sine in ((outer_tangent, outer_sine), (inner_tangent, inner_sine)):
        re = re - tangent * im
        im = im + sine * re
        re = re - tangent * im
    sign = outer_sign * inner_sign
    return sign * re, sign * im


def turn_planes(re: torch.Tensor, im: torch.Tensor, rates: torch.Tensor, power: Power) -> Planes:
    """Rotate the phase of every point by the potential; no modulus changes.

    Args:
        re: Real part, any shape.
        im: Imaginary part, shape of ``re``.
        rates: Time multiplied by ``m2``, and by ``lam``, shape ``[2]``.
        power: ``|phi|^(rank-2)`` of ``|phi|^2``.

    Returns:
        Two planes of the shape of ``re``.
    """
    own, interaction = rates.unbind()
    angle = own + interaction * power(re * re + im * im)
    c, s = torch.cos(angle), torch.sin(angle)
    return re * c + im * s, im * c - re * s


# --- conversion from and to complex --------------------------------------------------------------


def _as_cube(phi: torch.Tensor) -> torch.Tensor:
    # On an added axis of one point, the point is its own neighbour: the Laplacian is 0 along it.
    shape = (1,) * (MAX_AXES - phi.ndim) + tuple(phi.shape)
    return phi.reshape(shape).resolve_conj().contiguous()


def _on_cube(
    phi: torch.Tensor,
    by_words: Callable[..., torch.Tensor],
    by_pairs: Callable[..., torch.Tensor],
    *arguments: torch.Tensor,
) -> torch.Tensor:
    cube = _as_cube(phi)
    if fits_words(cube):
        result = by_words(cube.view(torch.float64), *arguments)
    else:
        result = by_pairs(torch.view_as_real(cube), *arguments)
    return _as_complex(result).reshape(phi.shape)


def _as_complex(result: torch.Tensor) -> torch.Tensor:
    # Words have the three axes of the grid, pairs one more.
    if result.ndim == MAX_AXES:
        return result.view(torch.complex64)
    return torch.view_as_complex(result)


def _rings_from_words(words: torch.Tensor) -> Planes:
    # The halo first: 2.6.0 does not compile a concatenation of tensors viewed as another dtype.
    lower, upper = halves_of_words(words)
    return _ring(lower).view(torch.float32), _ring(upper).view(torch.float32)


def _from_pairs(pairs: torch.Tensor) -> Planes:
    return pairs[..., 0], pairs[..., 1]


def _to_pairs(re: torch.Tensor, im: torch.Tensor) -> torch.Tensor:
    return torch.stack((re, im), dim=-1)


# --- shared --------------------------------------------------------------------------------------


def _ring(x: torch.Tensor) -> torch.Tensor:
    # With indices modulo n, Inductor does not vectorise the innermost loop; with a halo it does.
    return torch.cat((x[..., -1:], x, x[..., :1]), dim=-1)


def _total(x: torch.Tensor) -> torch.Tensor:
    # Axis by axis: short sums lose fewer digits, and torch 2.15 has different, slower code for sums
    # over more than 4096 numbers. The rows of a slab come first: they add without a shuffle.
    return x.sum(dim=1).sum(dim=0).sum(dim=0)


def _numbers(phi: torch.Tensor, *values: float) -> torch.Tensor:
    # In a tensor: a Python number would be a constant in the graph, and each change a recompile.
    return _tensor_of(values, phi.dtype.to_real(), phi.device)


@functools.lru_cache(maxsize=256)
def _tensor_of(
    values: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    # Cached: a simulation uses the same values at every step, and on an accelerator each would be a
    # copy to wait for. Not inference tensors: later calls may want gradients.
    with torch.inference_mode(mode=False):
        return torch.tensor(values, dtype=dtype, device=device)


def _as_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _compiler(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = get_compiled(function, dynamic=True, fullgraph=True)
    return compiled


@functools.cache
def _compiled_potential(rank: int) -> Callable[[torch.Tensor, float, float], torch.Tensor]:
    return make_condensate_potential(_compiler, rank=rank)


@functools.cache
def _compiled_energy(rank: int) -> Callable[[torch.Tensor, float, float], torch.Tensor]:
    return make_condensate_energy(_compiler, rank=rank)


@functools.cache
def _compiled_euler(rank: int) -> Callable[[torch.Tensor, float, float, float], torch.Tensor]:
    return make_condensate_euler(_compiler, rank=rank)


@functools.cache
def _compiled_hops(
    rank: int, n_amplitudes: int
) -> Callable[[torch.Tensor, float, float, float, int], torch.Tensor]:
    return make_condensate_hops(_compiler, rank=rank, n_amplitudes=n_amplitudes)


@functools.cache
def _compiled_strang(
    rank: int,
) -> Callable[[torch.Tensor, float, float, float, int], torch.Tensor]:
    return make_condensate_strang(_compiler, rank=rank)


def _check(phi: torch.Tensor, rank: int, **parameters: object) -> None:
    if phi.dtype not in (torch.complex64, torch.complex128):
        raise ValueError(f"phi must be complex64 or complex128, got {phi.dtype}")
    if not 1 <= phi.ndim <= MAX_AXES:
        raise ValueError(f"phi must have 1 to {MAX_AXES} axes, got shape {list(phi.shape)}")
    _check_whole("rank", rank, at_least=2)
    if rank > MAX_RANK:
        raise ValueError(f"rank must be at most {MAX_RANK}, got {rank}")
    for name, value in parameters.items():
        # A tensor would be a key of the caches above, which would miss a change of its value.
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite Python number, got {value!r}")


def _check_whole(name: str, value: object, *, at_least: int) -> None:
    if not isinstance(value, int) or value < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}, got {value!r}")
