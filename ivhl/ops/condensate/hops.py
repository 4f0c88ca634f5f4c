"""Strang's splitting with short steps: a stencil of hops, exact to rounding, moves the condensate.

Half a step of the potential, a whole step of the Laplacian, and half a step of the potential; see
``ivhl.ops.condensate.strang``.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.ops.condensate.arguments import numbers_like
from ivhl.ops.condensate.interaction import power_of_density, turn_planes
from ivhl.ops.condensate.layouts import (
    MAX_AXES,
    as_complex,
    as_cube,
    pairs_of_planes,
    planes_of_pairs,
)
from ivhl.ops.words import fits_words, planes_of_words, words_of_planes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.ops.condensate.layouts import Planes

# Numbers of amplitudes that a compiled stencil may have. Each is compiled separately, so a sweep of
# time steps must not need many. A step that needs more than the last uses Fourier transforms.
STENCIL_SIZES: Final = (4, 8)


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
        return turn_planes(*planes_of_pairs(pairs), rates, power)

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
        return pairs_of_planes(*step(re, im, rates, amplitudes))

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
        half, whole = numbers_like(phi, *(0.5 * rate for rate in rates)), numbers_like(phi, *rates)
        amplitudes = numbers_like(
            phi, *(hop_amplitude(dt, order) for order in range(n_amplitudes))
        )
        cube = as_cube(phi)
        if fits_words(cube):
            first, last = by_words
            re, im = first(cube.view(torch.float64), half)
        else:
            first, last = by_pairs
            re, im = first(torch.view_as_real(cube), half)
        for _ in range(n_steps - 1):
            re, im = middle(re, im, whole, amplitudes)
        return as_complex(last(re, im, half, amplitudes)).reshape(phi.shape)

    return evolve


def hop_amplitudes(dt: float, *, precision: float) -> tuple[float, ...]:
    """Return the amplitudes of hops by 0, 1, 2, ... points along an axis in a time ``dt``.

    Without the diagonal of the Laplacian, one axis is a chain of hops, and
    ``exp(i dt (S + S^-1)) = sum over m of i^m J_m(2 dt) S^m`` with Bessel functions ``J`` and the
    shift ``S`` by one point. ``J_m`` falls like ``dt^m / m!``, so a short sum is exact to rounding.

    Args:
        dt: Time, at most 1 in size.
        precision: Amplitudes from the first below this on are left out.

    Returns:
        ``J_0(2 dt), J_1(2 dt), ...``, at least two numbers.

    Raises:
        ValueError: If ``dt`` is larger than 1: the sum would be neither short nor accurate.

    Source:
        Jacobi-Anger expansion, Abramowitz and Stegun 9.1.41; series 9.1.10.
    """
    if not abs(dt) <= 1.0:
        raise ValueError(f"dt must be between -1 and 1, got {dt}")

    amplitudes = [hop_amplitude(dt, 0), hop_amplitude(dt, 1)]
    while abs(following := hop_amplitude(dt, len(amplitudes))) >= precision:
        amplitudes.append(following)
    return tuple(amplitudes)


@functools.lru_cache(maxsize=256)
def hop_amplitude(dt: float, order: int) -> float:
    """Return the Bessel function ``J_order(2 dt)`` for a ``dt`` of at most 1 in size."""
    return math.fsum(
        (-1) ** j * dt ** (2 * j + order) / (math.factorial(j) * math.factorial(j + order))
        for j in range(20)
    )


def hop(
    re: torch.Tensor, im: torch.Tensor, amplitudes: tuple[float, ...] | tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Move a condensate along each axis by ``hop_amplitudes``.

    Args:
        re: Real part, shape ``[a, b, c]``.
        im: Imaginary part, shape of ``re``.
        amplitudes: As from ``hop_amplitudes``; numbers, or tensors without axes.

    Returns:
        Real and imaginary part afterwards.
    """
    for axis in reversed(range(MAX_AXES)):
        moved_re = _shifted_sums(re, axis, len(amplitudes))
        moved_im = _shifted_sums(im, axis, len(amplitudes))
        re, im = amplitudes[0] * re, amplitudes[0] * im
        for m in range(1, len(amplitudes)):
            # i^m is 1, i, -1, -i in turn
            amplitude = amplitudes[m] if m % 4 < 2 else -amplitudes[m]  # noqa: PLR2004
            if m % 2:
                re, im = re - amplitude * moved_im[m - 1], im + amplitude * moved_re[m - 1]
            else:
                re, im = re + amplitude * moved_re[m - 1], im + amplitude * moved_im[m - 1]
    return re, im


def _shifted_sums(x: torch.Tensor, axis: int, n_amplitudes: int) -> list[torch.Tensor]:
    """Return, for each distance, the sum of the two periodic shifts of ``x`` along ``axis``."""
    n, reach = x.shape[axis], n_amplitudes - 1
    if axis != x.ndim - 1 or n < reach:
        # Inductor up to 2.6.0 rolls by more than n from outside of the tensor (docs/findings.md).
        return [x.roll(m % n, axis) + x.roll(-(m % n), axis) for m in range(1, n_amplitudes)]
    # With indices modulo n, Inductor does not vectorise the innermost loop; with a halo it does.
    halo = torch.cat((x[..., n - reach :], x, x[..., :reach]), dim=-1)
    return [
        halo[..., reach - m : reach - m + n] + halo[..., reach + m : reach + m + n]
        for m in range(1, n_amplitudes)
    ]
