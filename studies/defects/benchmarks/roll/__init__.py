"""A roll by more rows than there are."""

from __future__ import annotations

from typing import Final

from ivhl.workload import Variant, Workload

CALLS = "benchmarks.roll.calls"

WORKLOAD: Final = Workload(
    name="ops.long_roll",
    version=1,
    title="Roll by more rows than there are",
    sizes={"small": (5, 6, 7)},
    default_size="small",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:move",
    reference=f"{CALLS}:reference",
    outputs=("moved",),
    variants=tuple(
        Variant(name=name, call=f"{CALLS}:move", dynamic=dynamic, fullgraph=True)
        for name, dynamic in (("dynamic", True), ("compiled", False))
    ),
)
WORKLOADS: Final = (WORKLOAD,)
