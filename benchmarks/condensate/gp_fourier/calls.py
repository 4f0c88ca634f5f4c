"""Calls of the Gross-Pitaevskii workload with long steps, the constants bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.condensate.gp_evolve import LAM, M2, N_STEPS, RANK
from benchmarks.condensate.gp_evolve import reference as gp_evolve_reference
from benchmarks.condensate.gp_fourier import DT
from ivhl.ops.condensate.waves import gp_evolve, make_condensate_strang

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


def evolve(phi: torch.Tensor) -> torch.Tensor:
    """Return the condensate four steps later, shape and dtype of ``phi``."""
    return gp_evolve(phi, dt=DT, m2=M2, lam=LAM, rank=RANK, n_steps=N_STEPS)


def make_evolve(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``evolve`` by ``ivhl.ops.evolve_condensate_gp``, compiled by ``compiler``."""
    by_waves = make_condensate_strang(compiler, rank=RANK)
    return lambda phi: by_waves(phi, DT, M2, LAM, N_STEPS)


def reference(phi: torch.Tensor) -> torch.Tensor:
    """Return the condensate four steps later, shape ``[n, n, n]``, complex128."""
    return gp_evolve_reference.reference(phi, DT)
