"""The field by another formula: source after source, in cosines and sines."""

from __future__ import annotations

import torch

MIN_DISTANCE = 0.1  # written again on purpose: the reference shares nothing with the operation


def reference(  # noqa: PLR0917  (inputs of a workload come in order)
    grid_points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
) -> torch.Tensor:
    """Return the field of wave number 1 at every point, shape ``[n_points]``, complex128."""
    x, y, z = grid_points.double().unbind(dim=1)
    re, im = torch.zeros_like(x), torch.zeros_like(x)
    for m in range(sources.shape[0]):
        sx, sy, sz = sources[m].double()
        d = torch.hypot(torch.hypot(x - sx, y - sy), z - sz)
        d = torch.where(d < MIN_DISTANCE, torch.full_like(d, MIN_DISTANCE), d)
        own = frequencies[m] * t + phases[m]
        # cos(d + own) and sin(d + own), by the addition theorems
        c, s = torch.cos(own), torch.sin(own)
        re = re + amplitudes[m] * (torch.cos(d) * c - torch.sin(d) * s) / d
        im = im + amplitudes[m] * (torch.sin(d) * c + torch.cos(d) * s) / d
    return torch.complex(re, im)
