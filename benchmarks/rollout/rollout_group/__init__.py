"""The choice of operators of the strategy: group norms and the GELU by tanh, another model.

Its last phase, batches over operators, is a variant here.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.rollout import rollout_instance
from benchmarks.rollout.rollout_instance import phases
from ivhl.workload import Variant

CALLS = "benchmarks.rollout.rollout_group.calls"

WORKLOAD = replace(
    rollout_instance.WORKLOAD,
    name="rollout.group",
    title="Steps of convolutional operators with group norms, residual policy, noise",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:steps",
    reference="benchmarks.rollout.rollout_group.reference:reference",
    variants=(
        *(v for v in phases(CALLS) if v.engine == "compile"),
        # On a GPU evolve-compiled has them at once, too.
        Variant(
            name="joined-compiled",
            call=f"{CALLS}:make_joined",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
            devices=("cpu",),
        ),
    ),
)
