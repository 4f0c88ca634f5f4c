"""A condensate: potential, energy, and the Gross-Pitaevskii equation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.condensate import (
    condensate_energy,
    condensate_potential,
    condensate_potential_gradient,
    gp_euler,
    gp_evolve,
    gp_fourier,
)

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    condensate_potential.WORKLOAD,
    condensate_potential_gradient.WORKLOAD,
    condensate_energy.WORKLOAD,
    gp_evolve.WORKLOAD,
    gp_fourier.WORKLOAD,
    gp_euler.WORKLOAD,
)
