"""Time evolution of a condensate on a periodic cubic lattice of spacing 1.

The equation is ``i dphi/dt = -L phi + m2 phi + lam |phi|^(rank-2) phi``, where ``L`` is the
Laplacian of three points per axis. Rank 4 is the Gross-Pitaevskii equation. One step of Strang's
splitting is half a step of the potential, a whole one of ``L``, and half a step of the potential:
each part is solved exactly, so the norm is conserved and the error is of second order in ``dt``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

N_AXES: Final = 3


def laplacian_symbol(n: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return the eigenvalues of minus the Laplacian, in the order of ``torch.fft.fftn``.

    Args:
        n: Points per axis.
        dtype: Real floating dtype.
        device: Where to make it.

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
    """Return the condensate after some steps, written as the scheme reads.

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


def make_gp_evolve(
    compiler: Callable[..., Any],
    *,
    dt: float,
    m2: float,
    lam: float,
    rank: int = 4,
    n_steps: int = 1,
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``gp_evolve`` with its point-wise parts compiled, in real arithmetic.

    Args:
        compiler: What turns a function into a compiled one; the identity runs it eagerly.
        dt: Time step.
        m2: Coefficient of ``phi``.
        lam: Strength of the interaction.
        rank: Power of ``|phi|`` in the energy.
        n_steps: Number of steps.

    Returns:
        A function from a condensate, shape ``[n, n, n]``, complex, to the evolved one.
    """

    def half_potential(re: torch.Tensor, im: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return turn(re, im, dt=0.5 * dt, m2=m2, lam=lam, rank=rank)

    def kinetic(re: torch.Tensor, im: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angle = -dt * laplacian_symbol(re.shape[0], dtype=re.dtype, device=re.device)
        c, s = torch.cos(angle), torch.sin(angle)
        return re * c - im * s, re * s + im * c

    compiled_half, compiled_kinetic = compiler(half_potential), compiler(kinetic)

    def evolve(phi: torch.Tensor) -> torch.Tensor:
        _check(phi, rank=rank, n_steps=n_steps)
        for _ in range(n_steps):
            phi = torch.complex(*compiled_half(phi.real, phi.imag))
            phi = torch.fft.fftn(phi)
            phi = torch.complex(*compiled_kinetic(phi.real, phi.imag))
            phi = torch.fft.ifftn(phi)
            phi = torch.complex(*compiled_half(phi.real, phi.imag))
        return phi

    return evolve


def turn(
    re: torch.Tensor, im: torch.Tensor, *, dt: float, m2: float, lam: float, rank: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Solve the potential part for a time ``dt``: every point turns, no modulus changes.

    Args:
        re: Real part, any shape.
        im: Imaginary part, shape of ``re``.
        dt: Time.
        m2: Coefficient of ``phi``.
        lam: Strength of the interaction.
        rank: Power of ``|phi|`` in the energy; even ones need no square root.

    Returns:
        Real and imaginary part after that time.
    """
    density = re * re + im * im
    half, odd = divmod(rank - 2, 2)
    power = density**half * density.sqrt() if odd else density**half
    angle = -dt * (m2 + lam * power)
    c, s = torch.cos(angle), torch.sin(angle)
    return re * c - im * s, re * s + im * c


def _check(phi: torch.Tensor, *, rank: int, n_steps: int) -> None:
    if not phi.dtype.is_complex:
        raise ValueError(f"phi must be complex, got {phi.dtype}")
    if phi.ndim != N_AXES or len(set(phi.shape)) != 1:
        raise ValueError(f"phi must have shape [n, n, n], got {list(phi.shape)}")
    if rank < 2:  # noqa: PLR2004  (|phi|^(rank-2) must not diverge at zero)
        raise ValueError(f"rank must be at least 2, got {rank}")
    if n_steps < 1:
        raise ValueError(f"n_steps must be at least 1, got {n_steps}")
