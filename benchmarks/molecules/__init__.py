"""The force field: energy and forces of small molecules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.molecules import (
    edge_list,
    energy_forces,
    trajectory,
)

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    energy_forces.WORKLOAD,
    edge_list.WORKLOAD,
    trajectory.WORKLOAD,
)
