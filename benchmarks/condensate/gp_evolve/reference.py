"""The same steps without a Fourier transform: matrix multiplications with real eigenvectors."""

from __future__ import annotations

import math

import torch

from benchmarks.condensate.gp_evolve import DT, LAM, M2, N_STEPS, RANK


def reference(phi: torch.Tensor, dt: float = DT) -> torch.Tensor:
    """Return the condensate four steps later, shape ``[n, n, n]``, complex128.

    The stencil of one axis is a symmetric circulant matrix, and the Hartley matrix
    ``(cos + sin)(2 pi j k / n) / sqrt(n)`` holds its real orthonormal eigenvectors. Its
    exponential is applied axis by axis, and real and imaginary part are turned by hand.
    """
    n = phi.shape[0]
    index = torch.arange(n, device=phi.device)
    # j k modulo n in integers: large angles would lose digits
    angle = 2.0 * math.pi / n * ((index[:, None] * index[None, :]) % n).double()
    hartley = (torch.cos(angle) + torch.sin(angle)) / math.sqrt(n)
    energies = 4.0 * torch.sin(math.pi / n * index.double()).square()
    cosine = hartley @ torch.diag(torch.cos(dt * energies)) @ hartley
    minus_sine = -hartley @ torch.diag(torch.sin(dt * energies)) @ hartley
    re, im = phi.real.double(), phi.imag.double()
    for _ in range(N_STEPS):
        re, im = _turn(re, im, dt)
        for axis in range(3):
            x, y = re.movedim(axis, -1), im.movedim(axis, -1)
            re = (x @ cosine - y @ minus_sine).movedim(-1, axis)
            im = (x @ minus_sine + y @ cosine).movedim(-1, axis)
        re, im = _turn(re, im, dt)
    return torch.complex(re.contiguous(), im.contiguous())


def _turn(re: torch.Tensor, im: torch.Tensor, dt: float) -> tuple[torch.Tensor, torch.Tensor]:
    angle = 0.5 * dt * (M2 + LAM * torch.hypot(re, im).pow(RANK - 2))
    return (
        re * torch.cos(angle) + im * torch.sin(angle),
        im * torch.cos(angle) - re * torch.sin(angle),
    )
