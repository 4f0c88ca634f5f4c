"""Every workload, in the order pages show them. Adding one is one import and one line.

Nothing here or in a declaration imports torch; ``*_calls`` and ``*_reference`` do, in the cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ivhl.workloads import (
    cdt_sweep,
    condensate_potential,
    energy_forces,
    entanglement_entropy,
    field_superposition,
    gp_euler,
    gp_evolve,
    mera_layer,
    phase_gradient,
    rnn_gru,
    tensor_network,
    vortex_field,
)

if TYPE_CHECKING:
    from ivhl.workload import Workload

# What the tracker runs in every cell, and what the history in results/ is about.
WORKLOADS: Final[tuple[Workload, ...]] = (
    field_superposition.WORKLOAD,
    gp_evolve.WORKLOAD,
    energy_forces.WORKLOAD,
)

# Every workload there is, in the order of a table. `python -m ivhl.benchmarks` and the contract
# tests run all of them; those that are only here join the tracker with their first records.
OPERATIONS: Final[tuple[Workload, ...]] = (
    field_superposition.WORKLOAD,
    vortex_field.WORKLOAD,
    phase_gradient.WORKLOAD,
    condensate_potential.WORKLOAD,
    gp_evolve.WORKLOAD,
    gp_euler.WORKLOAD,
    mera_layer.WORKLOAD,
    tensor_network.WORKLOAD,
    entanglement_entropy.WORKLOAD,
    rnn_gru.WORKLOAD,
    cdt_sweep.WORKLOAD,
    energy_forces.WORKLOAD,
)
