"""Every workload, in the order pages show them. Adding one is one import and one line.

Nothing here or in a declaration imports torch; ``*_calls`` and ``*_reference`` do, in the cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ivhl.workloads import energy_forces, field_superposition, gp_evolve

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    field_superposition.WORKLOAD,
    gp_evolve.WORKLOAD,
    energy_forces.WORKLOAD,
)
