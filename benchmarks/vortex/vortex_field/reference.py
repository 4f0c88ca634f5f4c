"""The vortices by another formula: one after the other, as integer powers of a unit number."""

from __future__ import annotations

import torch

CORE_RADIUS = 0.1  # repeated on purpose: the reference shares no code with the operation


def reference(
    grid_points: torch.Tensor, centers: torch.Tensor, charges: torch.Tensor
) -> torch.Tensor:
    """Return the field of integer charges at every point, shape ``[n_points]``, complex128."""
    x, y, z = grid_points.double().unbind(dim=1)
    re, im = torch.ones_like(x), torch.zeros_like(x)
    for v in range(centers.shape[0]):
        dx, dy, dz = x - centers[v, 0], y - centers[v, 1], z - centers[v, 2]
        rho = torch.hypot(dx, dy)
        falling = torch.exp(-2.0 * torch.hypot(rho, dz) / CORE_RADIUS)
        core = (1.0 - falling) / (1.0 + falling)  # tanh
        charge = int(charges[v])
        c, s = dx / rho, (dy if charge > 0 else -dy) / rho
        re, im = re * core, im * core
        for _ in range(abs(charge)):
            re, im = re * c - im * s, re * s + im * c
    return torch.complex(re, im)
