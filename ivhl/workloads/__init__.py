"""Every workload, in the order pages show them. Adding one is one import and one line.

Nothing here or in a declaration imports torch; ``*_calls`` and ``*_reference`` do, in the cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ivhl.workloads import (
    cdt_propose_moves,
    cdt_sweep,
    condensate_energy,
    condensate_potential,
    condensate_potential_gradient,
    energy_forces,
    entanglement_entropy,
    field_gradient,
    field_superposition,
    gp_euler,
    gp_evolve,
    gp_fourier,
    intensity,
    mera_ascend,
    mera_coarse_grain,
    mera_descend,
    mera_layer,
    mera_refine,
    normalize_field,
    phase_gradient,
    rnn_gru,
    rnn_gru_bf16,
    rnn_gru_gradient,
    rnn_step_gru,
    tensor_network,
    trajectory,
    vortex_field,
)

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    field_superposition.WORKLOAD,
    field_gradient.WORKLOAD,
    vortex_field.WORKLOAD,
    intensity.WORKLOAD,
    normalize_field.WORKLOAD,
    phase_gradient.WORKLOAD,
    condensate_potential.WORKLOAD,
    condensate_potential_gradient.WORKLOAD,
    condensate_energy.WORKLOAD,
    gp_evolve.WORKLOAD,
    gp_fourier.WORKLOAD,
    gp_euler.WORKLOAD,
    mera_layer.WORKLOAD,
    mera_coarse_grain.WORKLOAD,
    mera_refine.WORKLOAD,
    mera_ascend.WORKLOAD,
    mera_descend.WORKLOAD,
    tensor_network.WORKLOAD,
    entanglement_entropy.WORKLOAD,
    rnn_step_gru.WORKLOAD,
    rnn_gru.WORKLOAD,
    rnn_gru_gradient.WORKLOAD,
    rnn_gru_bf16.WORKLOAD,
    cdt_propose_moves.WORKLOAD,
    cdt_sweep.WORKLOAD,
    energy_forces.WORKLOAD,
    trajectory.WORKLOAD,
)
