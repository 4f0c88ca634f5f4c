"""The same energy with differences in Fourier space."""

from __future__ import annotations

import math

import torch

from benchmarks.condensate.condensate_energy import LAMBDA_COUPLING, MASS_SQ, RANK


def reference(phi: torch.Tensor) -> torch.Tensor:
    """Return the energy per point, without axes, float64.

    By Parseval, the squared differences of a wave are ``4 sin(k/2)^2`` per axis of its square.
    """
    n = phi.shape[0]
    squares = torch.fft.fftn(phi.to(torch.complex128)).abs().square() / phi.numel()
    angle = math.pi / n * torch.arange(n, dtype=torch.float64, device=phi.device)
    one = 4.0 * torch.sin(angle).square()
    symbol = one[:, None, None] + one[:, None] + one
    modulus = torch.hypot(phi.real.double(), phi.imag.double())
    potential = MASS_SQ * modulus**2 + 2.0 * LAMBDA_COUPLING / RANK * modulus**RANK
    return ((symbol * squares).sum() + potential.sum()) / phi.numel()
