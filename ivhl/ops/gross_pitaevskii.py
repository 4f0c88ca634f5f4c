"""Time evolution of a condensate on a periodic cubic lattice of spacing 1.

The equation is ``i dphi/dt = -L phi + m2 phi + lam |phi|^(rank-2) phi``, where ``L`` is the
Laplacian of three points per axis. Rank 4 is the Gross-Pitaevskii equation. One step of Strang's
splitting is half a step of the potential, a whole step of ``L``, and half a step of the potential.
Each part is solved exactly, so the norm is conserved and the error is of second order in ``dt``.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Power = Callable[[torch.Tensor], torch.Tensor]

N_AXES: Final = 3


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
    _check(phi, rank=rank, n_steps=n_steps)
    real = phi.real.dtype
    kinetic = torch.exp(-1j * dt * laplacian_symbol(phi.shape[0], dtype=real, device=phi.device))
    for _ in range(n_steps):
        phi = phi * torch.exp(-0.5j * dt * (m2 + lam * phi.abs() ** (rank - 2)))
        phi = torch.fft.ifftn(kinetic * torch.fft.fftn(phi))
        phi = phi * torch.exp(-0.5j * dt * (m2 + lam * phi.abs() ** (rank - 2)))
    return phi


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
    for axis in reversed(range(N_AXES)):
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
        return [x.roll(m, axis) + x.roll(-m, axis) for m in range(1, n_amplitudes)]
    # With indices modulo n, Inductor does not vectorise the innermost loop; with a halo it does.
    halo = torch.cat((x[..., n - reach :], x, x[..., :reach]), dim=-1)
    return [
        halo[..., reach - m : reach - m + n] + halo[..., reach + m : reach + m + n]
        for m in range(1, n_amplitudes)
    ]


def turn(
    re: torch.Tensor, im: torch.Tensor, *, dt: float, m2: float, lam: float, power: Power
) -> tuple[torch.Tensor, torch.Tensor]:
    """Solve the potential part for a time ``dt``: phases rotate, no modulus changes.

    Args:
        re: Real part, any shape.
        im: Imaginary part, shape of ``re``.
        dt: Time.
        m2: Coefficient of ``phi``.
        lam: Strength of the interaction.
        power: ``|phi|^(rank-2)`` of ``|phi|^2``, from ``power_of_density``.

    Returns:
        Real and imaginary part after that time.
    """
    density = re * re + im * im
    angle = -dt * (m2 + lam * power(density))
    c, s = torch.cos(angle), torch.sin(angle)
    return re * c - im * s, re * s + im * c


def power_of_density(rank: int) -> Power:
    """Return ``|phi|^(rank-2)`` as a function of ``|phi|^2``.

    With ``dynamic=True``, Dynamo would make a symbol of the number ``rank`` in a graph.
    """
    if rank == 2:  # noqa: PLR2004  (a second mass term, no interaction)
        return lambda density: torch.ones_like(density)  # noqa: PLW0108  (typed, unlike it)
    if rank == 3:  # noqa: PLR2004
        # The gradient of a square root is infinite at zero, and zero times infinity is NaN.
        return lambda density: density.clamp(min=torch.finfo(density.dtype).tiny).sqrt()
    if rank == 4:  # noqa: PLR2004
        return lambda density: density
    lower = power_of_density(rank - 2)

    def power(density: torch.Tensor) -> torch.Tensor:
        return density * lower(density)

    return power


def _check(phi: torch.Tensor, *, rank: int, n_steps: int) -> None:
    if not phi.dtype.is_complex:
        raise ValueError(f"phi must be complex, got {phi.dtype}")
    if phi.ndim != N_AXES or len(set(phi.shape)) != 1:
        raise ValueError(f"phi must have shape [n, n, n], got {list(phi.shape)}")
    if rank < 2:  # noqa: PLR2004  (|phi|^(rank-2) must not diverge at zero)
        raise ValueError(f"rank must be at least 2, got {rank}")
    if n_steps < 1:
        raise ValueError(f"n_steps must be at least 1, got {n_steps}")
