"""Inputs of the field's gradient, and the gradient over either form of the field."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.ops.elementary import cos_sin_of_turns
from ivhl.ops.field import MIN_DISTANCE, field_planes, field_superposition

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.field.field_gradient import Size

    Gradients = tuple[torch.Tensor, ...]

# Distance from the clamp's threshold below which float32 may put a point on the wrong side of it.
EDGE: Final = 1e-3


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw points, sources, frequencies, amplitudes, phases and weights; the time is 0.7.

    All weights are positive, so that nothing cancels in the loss, the mean intensity per source. A
    point at the edge of the clamp of a source, where there is no gradient, has no weight.

    Args:
        size: Numbers of points and sources.
        generator: Source of every number.

    Returns:
        Arguments of ``gradient``, float64.
    """
    n, m = size.n_points, size.n_sources

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    def uniform(length: int, low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(length, dtype=torch.float64, generator=generator)

    points, sources = normal(n, 3), 0.5 * normal(m, 3)
    weights = uniform(n, 0.5, 1.5) / (n * m)
    for source in sources:
        distance = torch.linalg.vector_norm(points - source, dim=1)
        weights[(distance - MIN_DISTANCE).abs() < EDGE] = 0.0
    return (
        points,
        sources,
        uniform(m, 0.5, 2.0),
        uniform(m, 0.5, 1.5),
        uniform(m, 0.0, 2.0 * math.pi),
        torch.tensor(0.7, dtype=torch.float64),
        weights,
    )


def brightness(  # noqa: PLR0917  (inputs of a workload come in order)
    grid_points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Return ``sum_n c_n |psi_n|^2`` of the field from the formula, without axes."""
    field = field_superposition(grid_points, sources, frequencies, amplitudes, phases, t)
    return (weights * field.abs() ** 2).sum()


def real_brightness(  # noqa: PLR0917  (inputs of a workload come in order)
    grid_points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Return ``brightness`` in real arithmetic."""
    re, im = field_planes(grid_points, sources, frequencies, amplitudes, phases, t)
    return (weights * (re * re + im * im)).sum()


def gradient(*inputs: torch.Tensor) -> Gradients:
    """Return the derivatives of ``brightness`` by positions, amplitudes and phases of the sources.

    Args:
        inputs: Points ``[n_points, 3]``, sources ``[n_sources, 3]``, frequencies, amplitudes and
            phases ``[n_sources]``, time, and weights ``c`` ``[n_points]``.

    Returns:
        Three tensors of the shapes of what they are derivatives by.
    """
    return _gradient_of(brightness)(*inputs)


def make_gradient(compiler: Callable[..., Any]) -> Callable[..., Gradients]:
    """Return ``gradient`` with ``brightness`` compiled unchanged, with its backward pass."""
    return _gradient_of(compiler(brightness))


def make_real_gradient(compiler: Callable[..., Any]) -> Callable[..., Gradients]:
    """Return ``gradient`` with ``brightness`` in real arithmetic, both passes compiled."""
    return _gradient_of(compiler(real_brightness))


def make_adjoint_gradient(compiler: Callable[..., Any]) -> Callable[..., Gradients]:
    """Return ``gradient`` without autograd: ``adjoint_planes``, compiled."""
    planes = compiler(adjoint_planes)

    def derivatives(grid_points: torch.Tensor, *others: torch.Tensor) -> Gradients:
        # Transposed once, outside, so that all x are contiguous in the sums over points.
        gradients: Gradients = planes(grid_points.t().contiguous(), *others)
        return gradients

    return derivatives


def adjoint_planes(  # noqa: PLR0917  (inputs of a workload come in order)
    coordinates: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
    weights: torch.Tensor,
) -> Gradients:
    """Return the derivatives of ``real_brightness``, derived by hand, in float32.

    Autograd would store tensors of all pairs between forward and backward pass. Here the backward
    pass computes every wave again, with one row per source, so that its sums over points are one
    loop.

    Args:
        coordinates: The points' x, y and z, shape ``[3, n_points]``.
        sources: Positions of the sources, shape ``[n_sources, 3]``.
        frequencies: Angular frequencies, shape ``[n_sources]``.
        amplitudes: Amplitudes, shape ``[n_sources]``.
        phases: Phases, shape ``[n_sources]``, in radians.
        t: Time, a tensor without axes.
        weights: Weights of the points, shape ``[n_points]``.

    Returns:
        Derivatives by position ``[n_sources, 3]``, by amplitude and by phase ``[n_sources]``.
    """
    re, im = field_planes(coordinates.t(), sources, frequencies, amplitudes, phases, t)
    by_re, by_im = 2.0 * weights * re, 2.0 * weights * im
    own_phase = 0.15915494309189535 * (frequencies * t + phases)
    own_phase = own_phase - own_phase.round()
    offsets = [sources[:, axis, None] - coordinates[axis] for axis in range(3)]
    square = offsets[0] * offsets[0] + offsets[1] * offsets[1] + offsets[2] * offsets[2]
    clamped = square.clamp(min=0.01)
    inverse = clamped.rsqrt()
    turns = 0.15915494309189535 * (clamped * inverse) + own_phase[:, None]
    sign, cos, sin = cos_sin_of_turns(turns)
    # A wave of amplitude 1, and the same rotated by pi/2, each times the derivative by psi.
    along = (by_re * cos + by_im * sin) * (sign * inverse)
    across = (by_im * cos - by_re * sin) * (sign * inverse)
    by_length = torch.where(square > 0.01, (across - along * inverse) * inverse, 0.0)  # noqa: PLR2004
    by_position = torch.stack([(by_length * offset).sum(dim=1) for offset in offsets], dim=1)
    return amplitudes[:, None] * by_position, along.sum(dim=1), amplitudes * across.sum(dim=1)


def _gradient_of(loss: Callable[..., torch.Tensor]) -> Callable[..., Gradients]:
    def derivatives(  # noqa: PLR0917  (inputs of a workload come in order)
        grid_points: torch.Tensor,
        sources: torch.Tensor,
        frequencies: torch.Tensor,
        amplitudes: torch.Tensor,
        phases: torch.Tensor,
        t: torch.Tensor,
        weights: torch.Tensor,
    ) -> Gradients:
        position, amplitude, phase = leaves = tuple(
            x.detach().requires_grad_() for x in (sources, amplitudes, phases)
        )
        value = loss(grid_points, position, frequencies, amplitude, phase, t, weights)
        gradients: Gradients = torch.autograd.grad(value, leaves)
        return gradients

    return derivatives
