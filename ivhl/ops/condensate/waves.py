"""Strang's splitting with steps of any length: Fourier transforms, and a phase for each wave.

Half a step of the potential, a whole step of the Laplacian, and half a step of the potential; see
``ivhl.ops.condensate.strang``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ivhl.ops.condensate.arguments import numbers_like
from ivhl.ops.condensate.interaction import power_of_density, turn_planes
from ivhl.ops.condensate.layouts import (
    MAX_AXES,
    as_cube,
    on_cube,
    pairs_of_planes,
    planes_of_pairs,
)
from ivhl.ops.words import planes_of_words, words_of_planes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.ops.condensate.layouts import Planes


def gp_evolve(
    phi: torch.Tensor,
    *,
    dt: float,
    m2: float,
    lam: float,
    rank: int = 4,
    n_steps: int = 1,
) -> torch.Tensor:
    """Return the condensate after ``n_steps`` steps, computed literally from the scheme.

    Args:
        phi: Condensate, shape ``[n, n, n]``, complex.
        dt: Time step.
        m2: Coefficient of ``phi`` in the equation (a mass squared, or minus a chemical potential).
        lam: Strength of the interaction.
        rank: Power of ``|phi|`` in the energy, at least 2; 4 is Gross-Pitaevskii.
        n_steps: Number of steps.

    Returns:
        Condensate, shape ``[n, n, n]``, dtype of ``phi``.

    Raises:
        ValueError: If ``phi`` is not a complex cube, or ``rank`` or ``n_steps`` is too small.

    Source:
        Bao, Jaksch and Markowich, J. Comput. Phys. 187, 318 (2003); Strang, SIAM J. Numer. Anal.
        5, 506 (1968). Equation as in Zynerji/iVHL, scripts/compiled_ops.py,
        ``evolve_condensate_gp``, whose explicit Euler step grows without bound.
    """
    _check_cube(phi, rank=rank, n_steps=n_steps)
    real = phi.real.dtype
    kinetic = torch.exp(-1j * dt * laplacian_symbol(phi.shape[0], dtype=real, device=phi.device))
    for _ in range(n_steps):
        phi = phi * torch.exp(-0.5j * dt * (m2 + lam * phi.abs() ** (rank - 2)))
        phi = torch.fft.ifftn(kinetic * torch.fft.fftn(phi))
        phi = phi * torch.exp(-0.5j * dt * (m2 + lam * phi.abs() ** (rank - 2)))
    return phi


def laplacian_symbol(n: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return the eigenvalues of minus the Laplacian, in the order of ``torch.fft.fftn``.

    Args:
        n: Points per axis.
        dtype: Real floating dtype.
        device: Device of the result.

    Returns:
        ``sum over axes of 2 - 2 cos(2 pi k / n)``, shape ``[n, n, n]``, in ``[0, 12]``.
    """
    angle = 2.0 * math.pi / n * torch.arange(n, dtype=dtype, device=device)
    one = 2.0 - 2.0 * torch.cos(angle)
    return one[:, None, None] + one[None, :, None] + one[None, None, :]


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
        return pairs_of_planes(*turn_planes(*planes_of_pairs(pairs), rates, power))

    def disperse_words(
        words: torch.Tensor, outer: torch.Tensor, inner: torch.Tensor
    ) -> torch.Tensor:
        return words_of_planes(*disperse_planes(*planes_of_words(words), outer, inner))

    def disperse_pairs(
        pairs: torch.Tensor, outer: torch.Tensor, inner: torch.Tensor
    ) -> torch.Tensor:
        return pairs_of_planes(*disperse_planes(*planes_of_pairs(pairs), outer, inner))

    turn = compiler(turn_words), compiler(turn_pairs)
    disperse = compiler(disperse_words), compiler(disperse_pairs)

    def evolve(
        phi: torch.Tensor, dt: float, mass_sq: float, lambda_coupling: float, n_steps: int
    ) -> torch.Tensor:
        if phi.numel() == 0:
            return phi.clone()
        rates = dt * mass_sq, dt * lambda_coupling
        half, whole = numbers_like(phi, *(0.5 * rate for rate in rates)), numbers_like(phi, *rates)
        cube = as_cube(phi)
        outer, inner = dispersion(cube, dt)
        cube = on_cube(cube, *turn, half)
        for number in range(n_steps):
            waves = on_cube(torch.fft.fftn(cube), *disperse, outer, inner)
            # ``outer`` contains the scale of the inverse transform.
            cube = torch.fft.ifftn(waves, norm="forward")
            cube = on_cube(cube, *turn, half if number == n_steps - 1 else whole)
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


def _check_cube(phi: torch.Tensor, *, rank: int, n_steps: int) -> None:
    if not phi.dtype.is_complex:
        raise ValueError(f"phi must be complex, got {phi.dtype}")
    if phi.ndim != MAX_AXES or len(set(phi.shape)) != 1:
        raise ValueError(f"phi must have shape [n, n, n], got {list(phi.shape)}")
    if rank < 2:  # noqa: PLR2004  (|phi|^(rank-2) must not diverge at zero)
        raise ValueError(f"rank must be at least 2, got {rank}")
    if n_steps < 1:
        raise ValueError(f"n_steps must be at least 1, got {n_steps}")
