"""Inputs of the gradient, and its calls with the constants bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.ops.condensate import hops
from ivhl.ops.condensate.hops import make_condensate_hops
from ivhl.ops.condensate.waves import make_condensate_strang

if TYPE_CHECKING:
    from collections.abc import Callable

DT: Final = 0.004
M2: Final = -0.5
LAM: Final = 0.1
RANK: Final = 3
# Rolls by up to four; the shortest axis has three points. With more, a trial compiles for minutes.
N_AMPLITUDES: Final = 5


def rolled(x: torch.Tensor, axis: int, n_amplitudes: int) -> list[torch.Tensor]:
    """Return the shifted sums as ``ivhl.ops`` made them before it knew of this defect."""
    return [x.roll(m, axis) + x.roll(-m, axis) for m in range(1, n_amplitudes)]


hops._shifted_sums = rolled  # noqa: SLF001


def make_inputs(
    size: tuple[int, int, int], generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Draw a condensate and the weights of a sum over the next one, complex128."""
    return tuple(torch.randn(size, dtype=torch.complex128, generator=generator) for _ in range(2))


def gradient(phi: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the weighted sum of the condensate a step later, by transforms."""
    return slope(make_condensate_strang(lambda function: function, rank=RANK), phi, weight)


def make_gradient(
    compiler: Callable[..., Any],
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return ``gradient`` by a stencil longer than an axis, compiled by ``compiler``."""
    evolve = make_condensate_hops(compiler, rank=RANK, n_amplitudes=N_AMPLITUDES)
    return lambda phi, weight: slope(evolve, phi, weight)


def slope(
    evolve: Callable[..., torch.Tensor], phi: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of the real part of a weighted sum."""
    leaf = phi.detach().requires_grad_()
    (found,) = torch.autograd.grad((weight * evolve(leaf, DT, M2, LAM, 1)).real.sum(), leaf)
    return found.detach()
