"""Inputs of the roll, the call, and its reference."""

from __future__ import annotations

import torch

SHIFT = 7


def make_inputs(size: tuple[int, int, int], generator: torch.Generator) -> tuple[torch.Tensor]:
    """Draw the values, float64."""
    return (torch.randn(size, dtype=torch.float64, generator=generator),)


def move(values: torch.Tensor) -> torch.Tensor:
    """Return the values, of which axis 1 is rolled, beside their squares."""
    return torch.tanh(values.roll(SHIFT, 1)) + values * values


def reference(values: torch.Tensor) -> torch.Tensor:
    """Return the same by an index."""
    n_rows = values.shape[1]
    index = (torch.arange(n_rows) - SHIFT) % n_rows
    return torch.tanh(values[:, index]) + values * values
