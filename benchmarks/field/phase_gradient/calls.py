"""Inputs of the workload of phase gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from benchmarks.field.phase_gradient import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a field of noise, shape ``[n, n, n]``, complex128."""
    shape = (size.n, size.n, size.n)
    return (torch.randn(shape, dtype=torch.complex128, generator=generator),)
