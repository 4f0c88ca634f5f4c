"""The same derivatives by hand: source after source, from modulus and angle of the field."""

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
    weights: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the derivatives of ``sum_n c_n |psi_n|^2``, float64.

    With ``psi_n = R exp(i X)`` and a source's wave ``A exp(i a) / d``, ``a = d + w t + p``, at that
    point, ``d|psi|^2 = 2 R Re(exp(-i X) d(wave))``:

    * by amplitude: ``2 R cos(a - X) / d``,
    * by phase: ``-2 R A sin(a - X) / d``,
    * by distance: ``-2 R A (sin(a - X) + cos(a - X) / d) / d``, zero where it is clamped,

    and the distance changes with the source's position by the unit vector from point to source.

    Returns:
        Derivatives by position ``[n_sources, 3]``, by amplitude and by phase ``[n_sources]``.
    """
    x, y, z = grid_points.double().unbind(dim=1)
    distances, angles = [], []
    re, im = torch.zeros_like(x), torch.zeros_like(x)
    for m in range(sources.shape[0]):
        sx, sy, sz = sources[m].double()
        d = torch.hypot(torch.hypot(x - sx, y - sy), z - sz)
        angle = d.clamp(min=MIN_DISTANCE) + frequencies[m] * t + phases[m]
        re = re + amplitudes[m] / d.clamp(min=MIN_DISTANCE) * torch.cos(angle)
        im = im + amplitudes[m] / d.clamp(min=MIN_DISTANCE) * torch.sin(angle)
        distances.append(d)
        angles.append(angle)
    bright, turned = 2.0 * weights * torch.hypot(re, im), torch.atan2(im, re)
    by_position, by_amplitude = torch.zeros_like(sources), torch.zeros_like(amplitudes)
    by_phase = torch.zeros_like(phases)
    for m, (d, angle) in enumerate(zip(distances, angles, strict=True)):
        wave = bright / d.clamp(min=MIN_DISTANCE)
        along, across = wave * torch.cos(angle - turned), wave * torch.sin(angle - turned)
        by_amplitude[m] = along.sum()
        by_phase[m] = -amplitudes[m] * across.sum()
        per_length = torch.where(d > MIN_DISTANCE, -amplitudes[m] * (across + along / d) / d, 0.0)
        for axis, coordinate in enumerate((x, y, z)):
            by_position[m, axis] = (per_length * (sources[m, axis] - coordinate)).sum()
    return by_position, by_amplitude, by_phase
