"""Inputs of the additions, the call, and its reference."""

from __future__ import annotations

import torch

WIDTH = 128


def make_inputs(
    size: tuple[int, int], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the index of each row, and the rows, float64."""
    n_rows, n_sums = size
    index = torch.randint(0, n_sums, (n_rows,), generator=generator)
    return index, torch.randn(n_rows, WIDTH, dtype=torch.float64, generator=generator)


def add(index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the sum of the rows of each index, shape ``[8, 128]``."""
    scaled = torch.tanh(rows) * 2.0
    return rows.new_zeros(8, WIDTH).index_add(0, index, scaled + 1.0)


def reference(index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the same by a matrix multiplication."""
    chosen = (index[None, :] == torch.arange(8)[:, None]).to(rows.dtype)
    return chosen @ (torch.tanh(rows) * 2.0 + 1.0)
