"""Inputs of the vortex workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from benchmarks.vortex.vortex_field import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw points, centres, and charges from -2 to 2; the core radius is its default.

    Args:
        size: Numbers of points and vortices.
        generator: Source of every number.

    Returns:
        Arguments of ``ivhl.ops.vortex.vortex_field``, float64.
    """

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    charges = torch.randint(-2, 3, (size.n_vortices,), generator=generator)
    return normal(size.n_points, 3), 0.3 * normal(size.n_vortices, 3), charges.double()


def points_in_rows(
    grid_points: torch.Tensor, centers: torch.Tensor, charges: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return the inputs with points of shape ``[3, n_points]``."""
    return grid_points.t().contiguous(), centers, charges


def as_complex(planes: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the field of both planes."""
    return torch.complex(*planes)
