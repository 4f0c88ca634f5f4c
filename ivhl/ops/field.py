"""Superposition of monopole waves on a set of points.

Every source radiates ``exp(i k d) / d``, the outgoing Green's function of the Helmholtz equation
up to a constant. Distances below ``MIN_DISTANCE`` count as ``MIN_DISTANCE``, in the phase as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_DISTANCE: Final = 0.1


def field_superposition(  # noqa: PLR0917  (inputs of a workload come in order)
    grid_points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
    k: float = 1.0,
) -> torch.Tensor:
    """Return the field of all sources at every point, written as the formula reads.

    ``psi_n = sum_m A_m exp(i (k d_nm + w_m t + p_m)) / d_nm`` with
    ``d_nm = max(|r_n - s_m|, 0.1)``. In float32 ``torch.cdist`` takes the route over a matrix
    product, which loses digits far from the origin; the planes below do not.

    Args:
        grid_points: Points, shape ``[n_points, 3]``, in units of length.
        sources: Positions of the sources, shape ``[n_sources, 3]``, in units of length.
        frequencies: Angular frequencies ``w``, shape ``[n_sources]``, in radians per time.
        amplitudes: Amplitudes ``A``, shape ``[n_sources]``.
        phases: Phases ``p``, shape ``[n_sources]``, in radians.
        t: Time, a tensor without axes: a Python number would be compiled in as a constant.
        k: Wave number, in radians per length.

    Returns:
        Field, shape ``[n_points]``, the complex dtype of ``grid_points``.

    Raises:
        ValueError: If a shape or a dtype is wrong.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``compute_field_superposition``.
    """
    _check(grid_points, sources, frequencies, amplitudes, phases, t)
    d = torch.cdist(grid_points, sources).clamp(min=MIN_DISTANCE)  # [n_points, n_sources]
    waves = amplitudes * torch.exp(1j * (k * d + frequencies * t + phases)) / d
    return waves.sum(dim=1)


def field_planes(  # noqa: PLR0917  (inputs of a workload come in order)
    grid_points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
    k: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return real and imaginary part of the same field, in real arithmetic only.

    Inductor has no code for complex numbers: it calls the eager kernels for each of them. Real
    arithmetic becomes one loop, in which no array of shape ``[n_points, n_sources]`` exists.

    Args:
        grid_points: Points, shape ``[n_points, 3]``, in units of length.
        sources: Positions of the sources, shape ``[n_sources, 3]``, in units of length.
        frequencies: Angular frequencies, shape ``[n_sources]``, in radians per time.
        amplitudes: Amplitudes, shape ``[n_sources]``.
        phases: Phases, shape ``[n_sources]``, in radians.
        t: Time, a tensor without axes.
        k: Wave number, in radians per length.

    Returns:
        Two planes, each of shape ``[n_points]`` and the dtype of ``grid_points``.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    _check(grid_points, sources, frequencies, amplitudes, phases, t)
    difference = grid_points[:, None, :] - sources[None, :, :]
    d = (difference * difference).sum(dim=-1).sqrt().clamp(min=MIN_DISTANCE)
    angle = k * d + (frequencies * t + phases)
    weight = amplitudes / d
    return (weight * torch.cos(angle)).sum(dim=1), (weight * torch.sin(angle)).sum(dim=1)


def make_field_superposition(
    compiler: Callable[..., Callable[..., tuple[torch.Tensor, torch.Tensor]]],
) -> Callable[..., torch.Tensor]:
    """Return ``field_superposition`` with its real planes compiled.

    Args:
        compiler: What turns a function into a compiled one; the identity runs it eagerly.

    Returns:
        A function with the arguments and the result of ``field_superposition``.
    """
    planes = compiler(field_planes)

    def field(*inputs: torch.Tensor) -> torch.Tensor:
        # A complex tensor inside the graph would be a call out of it, so it is made out here.
        return torch.complex(*planes(*inputs))

    return field


def _check(  # noqa: PLR0917  (inputs of a workload come in order)
    grid_points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
) -> None:
    if not grid_points.dtype.is_floating_point:
        raise ValueError(f"grid_points must be real floating point, got {grid_points.dtype}")
    for name, points in (("grid_points", grid_points), ("sources", sources)):
        if points.ndim != 2 or points.shape[1] != 3:  # noqa: PLR2004  (axes, and x, y, z)
            raise ValueError(f"{name} must have shape [n, 3], got {list(points.shape)}")
    n_sources = sources.shape[0]
    for name, values in (
        ("frequencies", frequencies),
        ("amplitudes", amplitudes),
        ("phases", phases),
    ):
        if values.ndim != 1 or values.shape[0] != n_sources:
            raise ValueError(
                f"{name} must have shape [{n_sources}], one per source, got {list(values.shape)}"
            )
    if t.ndim != 0:
        raise ValueError(f"t must have no axes, got shape {list(t.shape)}")
    for name, values in (
        ("sources", sources),
        ("frequencies", frequencies),
        ("amplitudes", amplitudes),
        ("phases", phases),
        ("t", t),
    ):
        if values.dtype != grid_points.dtype:
            raise ValueError(
                f"{name} must have the dtype of grid_points, {grid_points.dtype}, "
                f"got {values.dtype}"
            )
