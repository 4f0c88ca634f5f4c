"""The same potential with finite differences as a matrix."""

from __future__ import annotations

import math

import torch

from benchmarks.condensate.condensate_potential import LAMBDA_COUPLING, MASS_SQ, RANK


def reference(phi: torch.Tensor) -> torch.Tensor:
    """Return the potential per point, without axes, float64.

    A row of the matrix holds the weights of one difference: half and minus half for the neighbours,
    or one and minus one in the first and the last row. It acts on real and imaginary part, axis by
    axis.
    """
    n = phi.shape[0]
    index = torch.arange(n, device=phi.device)
    upper, lower = (index + 1).clamp(max=n - 1), (index - 1).clamp(min=0)
    unit = torch.eye(n, dtype=torch.float64, device=phi.device)
    slopes = (unit[upper] - unit[lower]) / (upper - lower)[:, None]
    potential = torch.zeros((), dtype=torch.float64, device=phi.device)
    for part in (phi.real.double(), phi.imag.double()):
        for axis in range(3):
            potential = potential + (part.movedim(axis, -1) @ slopes.T).square().sum()
    modulus = torch.hypot(phi.real.double(), phi.imag.double())
    potential = potential + 0.5 * MASS_SQ * modulus.square().sum()
    potential = potential + LAMBDA_COUPLING / math.gamma(RANK + 1) * modulus.pow(RANK).sum()
    return potential / phi.numel()
