"""Inputs of the Gross-Pitaevskii workload, and its calls with the constants bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.condensate.gp_evolve import DT, LAM, M2, N_STEPS, RANK
from ivhl.ops.condensate.hops import make_condensate_hops, stencil_size
from ivhl.ops.condensate.waves import gp_evolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.condensate.gp_evolve import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a condensate of noise, shape ``[n, n, n]``, complex128, of size 0.1."""
    shape = (size.n, size.n, size.n)
    return (0.1 * torch.randn(shape, dtype=torch.complex128, generator=generator),)


def evolve(phi: torch.Tensor) -> torch.Tensor:
    """Return the condensate four steps later, shape and dtype of ``phi``."""
    return gp_evolve(phi, dt=DT, m2=M2, lam=LAM, rank=RANK, n_steps=N_STEPS)


def make_evolve(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``evolve`` by ``ivhl.ops.evolve_condensate_gp``, compiled by ``compiler``."""
    n_amplitudes = stencil_size(DT, torch.complex64)
    assert n_amplitudes is not None  # noqa: S101  (DT is short)
    by_hops = make_condensate_hops(compiler, rank=RANK, n_amplitudes=n_amplitudes)
    return lambda phi: by_hops(phi, DT, M2, LAM, N_STEPS)
