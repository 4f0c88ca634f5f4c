"""Inputs of the normalisation's workload, and its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ivhl.ops.complex_field import normalize_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.field.normalize_field import Size

    Call = Callable[[torch.Tensor], torch.Tensor]


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a field of noise, shape ``[n, n, n]``, complex128."""
    shape = (size.n, size.n, size.n)
    return (torch.randn(shape, dtype=torch.complex128, generator=generator),)


def normalize(field: torch.Tensor) -> torch.Tensor:
    """Return the field of norm 1 from the formula, shape and dtype of ``field``."""
    return field / (torch.linalg.vector_norm(field) + 1e-10)


def make_normalize(compiler: Callable[[Call], Call]) -> Call:
    """Return ``normalize`` in real arithmetic, compiled by ``compiler``."""
    of_parts = compiler(normalize_parts)

    def normalized(field: torch.Tensor) -> torch.Tensor:
        parts = of_parts(torch.view_as_real(field).reshape(-1, 2))
        return torch.view_as_complex(parts).reshape(field.shape)

    return normalized
