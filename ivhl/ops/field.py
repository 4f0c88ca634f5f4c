"""Superposition of monopole waves on a set of points.

Every source radiates ``exp(i k d) / d``, the outgoing Green's function of the Helmholtz equation
up to a constant. Distances below ``MIN_DISTANCE`` count as ``MIN_DISTANCE``, in the phase as well.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_DISTANCE: Final = 0.1

# sin(2 pi r) / r and cos(2 pi r) as polynomials in r^2, lowest power first, for |r| <= 1/4: exact
# at Chebyshev points, off by 7e-9 and 2e-10 elsewhere, which is below the rounding of float32.
_SIN_TURNS: Final = (
    6.283185280154406,
    -41.341680613346526,
    81.60247636892599,
    -76.58117264431282,
    39.75982708575151,
)
_COS_TURNS: Final = (
    0.9999999997791541,
    -19.73920854771579,
    64.9393464762116,
    -85.45356476105549,
    60.14388956138161,
    -24.981434474478363,
)


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
    arithmetic becomes one loop, in which no array of shape ``[n_points, n_sources]`` exists. In
    float32 the phase is counted in turns, and sine and cosine share one range reduction; a library
    sine spends most of its time on angles that do not occur here.

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
    x, y, z = grid_points[:, None, :].unbind(dim=-1)  # [n_points, 1]
    source_x, source_y, source_z = sources.unbind(dim=-1)  # [n_sources]
    dx, dy, dz = x - source_x, y - source_y, z - source_z
    d = (dx * dx + dy * dy + dz * dz).clamp(min=MIN_DISTANCE**2).sqrt()
    weight = amplitudes / d
    own_phase = frequencies * t + phases
    if grid_points.dtype == torch.float32:
        own_turns = own_phase / (2.0 * math.pi)
        turns = (k / (2.0 * math.pi)) * d + (own_turns - own_turns.round())
        sign, cos, sin = _cos_sin_of_turns(turns)
        weight = weight * sign
    else:
        angle = k * d + own_phase
        cos, sin = angle.cos(), angle.sin()
    return (weight * cos).sum(dim=1), (weight * sin).sum(dim=1)


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


def _cos_sin_of_turns(turns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the sign that both share, and cosine and sine of ``2 pi turns`` without it."""
    half_turns = (turns + turns).round()
    rest = turns - 0.5 * half_turns  # exact, in [-1/4, 1/4]
    sign = 1.0 - 2.0 * half_turns + 4.0 * (0.5 * half_turns).floor()  # -1 where half_turns is odd
    square = rest * rest
    return sign, _polynomial(_COS_TURNS, square), rest * _polynomial(_SIN_TURNS, square)


def _polynomial(coefficients: tuple[float, ...], x: torch.Tensor) -> torch.Tensor:
    value = coefficients[-1] * x + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        value = value * x + coefficient
    return value


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
