"""Inputs of the field workload."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ivhl.ops.field import field_planes

if TYPE_CHECKING:
    from benchmarks.field.field_superposition import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw points, sources, frequencies, amplitudes and phases; the time is 0.7.

    Args:
        size: Numbers of points and sources.
        generator: Source of every number.

    Returns:
        Arguments of ``ivhl.ops.field.field_superposition``, float64.
    """
    n, m = size.n_points, size.n_sources

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(m, dtype=torch.float64, generator=generator)

    return (
        normal(n, 3),
        0.5 * normal(m, 3),
        uniform(0.5, 2.0),
        uniform(0.5, 1.5),
        uniform(0.0, 2.0 * math.pi),
        torch.tensor(0.7, dtype=torch.float64),
    )


def in_rows(
    grid_points: torch.Tensor, sources: torch.Tensor, *others: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return the inputs with points ``[3, n_points]`` and sources ``[3, n_sources]``."""
    return grid_points.t().contiguous(), sources.t().contiguous(), *others


def planes_of_rows(
    points: torch.Tensor, sources: torch.Tensor, *waves: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the planes of the field, from coordinates whose loads are contiguous."""
    return field_planes(points.t(), sources.t(), *waves)


def as_complex(planes: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the field of both planes."""
    return torch.complex(*planes)
