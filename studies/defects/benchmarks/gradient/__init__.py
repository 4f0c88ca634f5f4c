"""The gradient of a Strang step by the condensate: eager by transforms, compiled by a stencil."""

from __future__ import annotations

from typing import Final

from ivhl.workload import Variant, Workload

CALLS = "benchmarks.gradient.calls"


WORKLOAD: Final = Workload(
    name="ops.gp_gradient",
    version=1,
    title="Gradient of a Strang step of the Gross-Pitaevskii equation",
    sizes={"small": (3, 6, 7)},
    default_size="small",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:gradient",
    reference=f"{CALLS}:gradient",
    outputs=("slope",),
    variants=tuple(
        Variant(
            name=name,
            call=f"{CALLS}:make_gradient",
            compiles="parts",
            dynamic=dynamic,
            fullgraph=True,
        )
        for name, dynamic in (("stencil-dynamic", True), ("stencil-compiled", False))
    ),
)
WORKLOADS: Final = (WORKLOAD,)
