"""Check the arguments of operations on points in space."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_points(name: str, points: torch.Tensor) -> None:
    """Check that ``points`` has one point per row.

    Raises:
        ValueError: If ``points`` is not float32 or float64 of shape ``[n, 3]``.
    """
    if points.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"{name} must be real floating point, float32 or float64, got {points.dtype}"
        )
    if points.ndim != 2 or points.shape[1] != 3:  # noqa: PLR2004  (axes, and x, y, z)
        raise ValueError(f"{name} must have shape [n, 3], got {list(points.shape)}")


def check_row(name: str, values: torch.Tensor, *, n: int, per: str) -> None:
    """Check that ``values`` has one value per source or vortex, ``n`` in all.

    Raises:
        ValueError: If the shape of ``values`` is not ``[n]``.
    """
    if values.ndim != 1 or values.shape[0] != n:
        raise ValueError(f"{name} must have shape [{n}], one per {per}, got {list(values.shape)}")


def check_no_axes(name: str, value: torch.Tensor) -> None:
    """Check that ``value`` is a single number.

    Raises:
        ValueError: If ``value`` has axes.
    """
    if value.ndim != 0:
        raise ValueError(f"{name} must have no axes, got shape {list(value.shape)}")


def check_like(grid_points: torch.Tensor, named: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Check that tensors have the dtype and the device of ``grid_points``.

    Raises:
        ValueError: If the dtype or the device of one differs.
    """
    for name, values in named:
        if values.dtype != grid_points.dtype:
            raise ValueError(
                f"{name} must have the dtype of grid_points, {grid_points.dtype}, "
                f"got {values.dtype}"
            )
        if values.device != grid_points.device:
            raise ValueError(
                f"{name} must be on the device of grid_points, {grid_points.device}, "
                f"got {values.device}"
            )


def as_scalar(name: str, value: float | torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the value as a tensor without axes; Dynamo would compile a number in as a constant.

    Raises:
        ValueError: If ``value`` is a number that is not finite.
    """
    if isinstance(value, torch.Tensor):
        return value
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return torch.full((), value, dtype=like.dtype, device=like.device)
