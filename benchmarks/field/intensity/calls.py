"""Inputs of the intensity's workload, and its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ivhl.ops.complex_field import intensity_of_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.field.intensity import Size

    Call = Callable[[torch.Tensor], torch.Tensor]


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a field of noise, shape ``[n, n, n]``, complex128."""
    shape = (size.n, size.n, size.n)
    return (torch.randn(shape, dtype=torch.complex128, generator=generator),)


def intensity(field: torch.Tensor) -> torch.Tensor:
    """Return the intensity, literally from the formula, shape of ``field``, its real dtype."""
    return field.abs() ** 2


def make_intensity(compiler: Callable[[Call], Call]) -> Call:
    """Return ``intensity`` in real arithmetic, compiled by ``compiler``."""
    of_parts = compiler(intensity_of_parts)
    return lambda field: of_parts(torch.view_as_real(field))
