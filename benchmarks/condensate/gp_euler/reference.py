"""The same step with a matrix for the Laplacian."""

from __future__ import annotations

import torch

from benchmarks.condensate.gp_euler import DT, LAMBDA_COUPLING, MASS_SQ, RANK


def reference(phi: torch.Tensor) -> torch.Tensor:
    """Return the condensate one step later, shape ``[n, n, n]``, complex128.

    Minus the Laplacian of one axis is a circulant matrix, applied axis by axis to real and imaginary
    part, and ``-i`` turns one into the other by hand.
    """
    n = phi.shape[0]
    unit = torch.eye(n, dtype=torch.float64, device=phi.device)
    minus_laplacian = 2.0 * unit - unit.roll(1, 0) - unit.roll(-1, 0)
    re, im = phi.real.double(), phi.imag.double()
    potential = MASS_SQ + LAMBDA_COUPLING * torch.hypot(re, im).pow(RANK - 2)
    change_re, change_im = potential * re, potential * im
    for axis in range(3):
        x, y = re.movedim(axis, -1), im.movedim(axis, -1)
        change_re = change_re + (x @ minus_laplacian).movedim(-1, axis)
        change_im = change_im + (y @ minus_laplacian).movedim(-1, axis)
    return torch.complex(re + DT * change_im, im - DT * change_re)
