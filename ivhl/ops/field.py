"""Superposition of monopole waves on a set of points.

Every source radiates ``exp(i k d) / d``, the outgoing Green's function of the Helmholtz equation
up to a constant. One of three regularisations changes the distance near a source, in amplitude and
phase:

* ``clamp``, the definition and the default: distances below ``MIN_DISTANCE`` become that;
* ``shift``: ``MIN_DISTANCE`` is added to every distance;
* ``none``: distances stay, and the field at a source is not finite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import torch

from ivhl.compile import get_compiled
from ivhl.ops.elementary import cos_sin_of_turns
from ivhl.ops.points import as_scalar, check_like, check_no_axes, check_points, check_row

if TYPE_CHECKING:
    from collections.abc import Callable

Regularization = Literal["clamp", "shift", "none"]

MIN_DISTANCE: Final = 0.1


def compute_field_superposition(  # noqa: PLR0917  (the signature is iVHL's)
    grid_points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: float | torch.Tensor = 0.0,
    k: float | torch.Tensor = 1.0,
    *,
    regularization: Regularization = "clamp",
) -> torch.Tensor:
    """Return the field of all sources at every point, by a compiled loop in real arithmetic.

    ``psi_n = sum_m A_m exp(i (k d_nm + w_m t + p_m)) / d_nm``, where ``d_nm`` is the distance from
    source to point, regularised. No tensor of shape ``[n_points, n_sources]`` is allocated. Numbers
    of points and sources, time and wave number may change from call to call without a recompile,
    except that a single source is compiled separately. Every tensor gets a gradient.

    Args:
        grid_points: Points, shape ``[n_points, 3]``, in units of length, float32 or float64.
        sources: Positions of the sources, shape ``[n_sources, 3]``, in units of length.
        frequencies: Angular frequencies ``w``, shape ``[n_sources]``, in radians per time.
        amplitudes: Amplitudes ``A``, shape ``[n_sources]``.
        phases: Phases ``p``, shape ``[n_sources]``, in radians.
        t: Time: a finite number, or a tensor without axes.
        k: Wave number, in radians per length: a finite number, or a tensor without axes.
        regularization: ``clamp``, ``shift`` or ``none``, see the module.

    Returns:
        Field, shape ``[n_points]``, the complex dtype of ``grid_points``.

    Raises:
        ValueError: If a shape, a dtype or a device is wrong, a number is not finite, or the
            regularisation is unknown.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``compute_field_superposition``.
    """
    check_points("grid_points", grid_points)
    t, k = as_scalar("t", t, grid_points), as_scalar("k", k, grid_points)
    inputs = (grid_points, sources, frequencies, amplitudes, phases, t, k)
    _check(*inputs)
    if regularization not in _COMPILED:
        raise ValueError(
            f"regularization must be one of {', '.join(_COMPILED)}, got {regularization!r}"
        )
    if grid_points.shape[0] <= 1 or sources.shape[0] == 0:
        # Dynamo would recompile for sizes 0 and 1, where there is no loop to speed up.
        return torch.complex(*field_planes(*inputs, regularization=regularization))
    # Other strides would recompile.
    return torch.complex(*_COMPILED[regularization](*(x.contiguous() for x in inputs)))


def field_superposition(  # noqa: PLR0917  (inputs of a workload come in order)
    grid_points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
    k: float | torch.Tensor = 1.0,
    *,
    regularization: Regularization = "clamp",
) -> torch.Tensor:
    """Return the field of all sources at every point, computed literally from the formula.

    ``psi_n = sum_m A_m exp(i (k d_nm + w_m t + p_m)) / d_nm`` with
    ``d_nm = max(|r_n - s_m|, 0.1)``, or another regularisation. In float32 ``torch.cdist`` uses
    a matrix multiplication, which loses digits far from the origin; ``field_planes`` does not.

    Args:
        grid_points: Points, shape ``[n_points, 3]``, in units of length.
        sources: Positions of the sources, shape ``[n_sources, 3]``, in units of length.
        frequencies: Angular frequencies ``w``, shape ``[n_sources]``, in radians per time.
        amplitudes: Amplitudes ``A``, shape ``[n_sources]``.
        phases: Phases ``p``, shape ``[n_sources]``, in radians.
        t: Time, a tensor without axes; Dynamo would compile a Python number in as a constant.
        k: Wave number, in radians per length.
        regularization: What happens near a source.

    Returns:
        Field, shape ``[n_points]``, the complex dtype of ``grid_points``.

    Raises:
        ValueError: If a shape or a dtype is wrong.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``compute_field_superposition``.
    """
    _check(grid_points, sources, frequencies, amplitudes, phases, t, k)
    d = torch.cdist(grid_points, sources)  # [n_points, n_sources]
    if regularization == "clamp":
        d = d.clamp(min=MIN_DISTANCE)
    elif regularization == "shift":
        d = d + MIN_DISTANCE
    waves = amplitudes * torch.exp(1j * (k * d + frequencies * t + phases)) / d
    return waves.sum(dim=1)


def field_planes(  # noqa: PLR0917  (inputs of a workload come in order)
    grid_points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
    k: float | torch.Tensor = 1.0,
    *,
    regularization: Regularization = "clamp",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return real and imaginary part of the same field, in real arithmetic only.

    Inductor generates no code for complex numbers: it calls an eager kernel for each operation.
    Real arithmetic becomes one loop, without a tensor of shape ``[n_points, n_sources]``. In
    float32 the phase is in turns, for which sine and cosine are short polynomials.

    Args:
        grid_points: Points, shape ``[n_points, 3]``, in units of length.
        sources: Positions of the sources, shape ``[n_sources, 3]``, in units of length.
        frequencies: Angular frequencies, shape ``[n_sources]``, in radians per time.
        amplitudes: Amplitudes, shape ``[n_sources]``.
        phases: Phases, shape ``[n_sources]``, in radians.
        t: Time, a tensor without axes.
        k: Wave number, in radians per length; a tensor without axes where values change.
        regularization: What happens near a source.

    Returns:
        Two planes, each of shape ``[n_points]`` and the dtype of ``grid_points``.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    _check(grid_points, sources, frequencies, amplitudes, phases, t, k)
    own_phase = frequencies * t + phases
    if grid_points.dtype == torch.float32:
        own_phase = own_phase * 0.15915494309189535  # 1 / (2 pi), a literal: see elementary.py
        own_phase = own_phase - own_phase.round()
    # One stacked tensor makes Inductor compute this once per source, not once per pair, and decides
    # where it cuts the expression: with other cuts, 2.5.1 stores tensors of all pairs, or fails.
    own_phase, amplitudes = torch.stack((own_phase, amplitudes), dim=1).unbind(dim=1)
    d = _distances(grid_points, sources, regularization)
    if grid_points.dtype == torch.float32:
        sign, cos, sin = cos_sin_of_turns(k * 0.15915494309189535 * d + own_phase)
        cos, sin = sign * cos, sign * sin
    else:
        angle = k * d + own_phase
        cos, sin = angle.cos(), angle.sin()
    weight = amplitudes / d
    return (weight * cos).sum(dim=1), (weight * sin).sum(dim=1)


def make_field_superposition(
    compiler: Callable[..., Callable[..., tuple[torch.Tensor, torch.Tensor]]],
) -> Callable[..., torch.Tensor]:
    """Return ``field_superposition`` with its real planes compiled.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function with the arguments and the result of ``field_superposition``.
    """
    planes = compiler(field_planes)

    def field(*inputs: torch.Tensor) -> torch.Tensor:
        # Inductor has no code for complex numbers, so the complex tensor is made outside the graph.
        return torch.complex(*planes(*inputs))

    return field


def _clamped_planes(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return field_planes(*inputs, regularization="clamp")


def _shifted_planes(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return field_planes(*inputs, regularization="shift")


def _bare_planes(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return field_planes(*inputs, regularization="none")


# Three functions, because Dynamo has one recompile limit per function.
_COMPILED: Final[dict[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]]] = {
    "clamp": get_compiled(_clamped_planes, dynamic=True, fullgraph=True),
    "shift": get_compiled(_shifted_planes, dynamic=True, fullgraph=True),
    "none": get_compiled(_bare_planes, dynamic=True, fullgraph=True),
}


def _distances(
    grid_points: torch.Tensor, sources: torch.Tensor, regularization: str
) -> torch.Tensor:
    """Return regularised distances, shape ``[n_points, n_sources]``, from direct differences."""
    x, y, z = grid_points[:, None, :].unbind(dim=-1)  # [n_points, 1]
    source_x, source_y, source_z = sources.unbind(dim=-1)  # [n_sources]
    dx, dy, dz = x - source_x, y - source_y, z - source_z
    square = dx * dx + dy * dy + dz * dz
    if regularization == "clamp":
        return square.clamp(min=0.01).sqrt()
    if regularization == "shift":
        # The square root has an infinite gradient at zero; the clamp makes it 0 there.
        return square.clamp(min=1e-37).sqrt() + 0.1
    return square.sqrt()


def _check(  # noqa: PLR0917  (inputs of a workload come in order)
    grid_points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
    k: float | torch.Tensor,
) -> None:
    check_points("grid_points", grid_points)
    check_points("sources", sources)
    per_source = (("frequencies", frequencies), ("amplitudes", amplitudes), ("phases", phases))
    for name, values in per_source:
        check_row(name, values, n=sources.shape[0], per="source")
    scalars = (("t", t), ("k", k)) if isinstance(k, torch.Tensor) else (("t", t),)
    for name, value in scalars:
        check_no_axes(name, value)
    check_like(grid_points, (("sources", sources), *per_source, *scalars))
