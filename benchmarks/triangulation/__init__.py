"""Causal dynamical triangulations: moves and sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.triangulation import (
    cdt_propose_moves,
    cdt_sweep,
)

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    cdt_propose_moves.WORKLOAD,
    cdt_sweep.WORKLOAD,
)
