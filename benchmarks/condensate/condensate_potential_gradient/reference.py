"""The same gradient by hand: differences, then their adjoint applied to the same points."""

from __future__ import annotations

import math

import torch

from benchmarks.condensate.condensate_potential_gradient import LAMBDA_COUPLING, MASS_SQ, RANK


def reference(phi: torch.Tensor) -> torch.Tensor:
    """Return ``dV/d(re) + i dV/d(im)``, shape ``[n, n, n]``, complex128.

    Mass and interaction give ``(m2 + lam / (rank-1)! |phi|^(rank-2)) phi``. Along each axis, which
    must have three points or more, ``sum |difference|^2`` gives twice the adjoint of the difference:
    half of it to the upper neighbour and minus half to the lower one; at the boundary all of it, to
    the last point and the one before it.
    """
    modulus = torch.hypot(phi.real.double(), phi.imag.double())
    rate = MASS_SQ + LAMBDA_COUPLING / math.gamma(RANK) * modulus.pow(RANK - 2)
    parts = []
    for part in (phi.real.double(), phi.imag.double()):
        total = rate * part
        for axis in range(3):
            f = part.movedim(axis, 0)
            back = torch.zeros_like(f)
            inside = f[2:] - f[:-2]  # twice the difference; its adjoint has weights of a half
            back[2:] += 0.5 * inside
            back[:-2] -= 0.5 * inside
            for low, high in ((0, 1), (-2, -1)):
                end = 2.0 * (f[high] - f[low])
                back[high] += end
                back[low] -= end
            total = total + back.movedim(0, axis)
        parts.append(total)
    return torch.complex(*parts)
