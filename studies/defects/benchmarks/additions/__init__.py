"""Additions to rows of which several have the same index."""

from __future__ import annotations

from typing import Final

from ivhl.workload import Variant, Workload

CALLS = "benchmarks.additions.calls"

WORKLOAD: Final = Workload(
    name="ops.lost_additions",
    version=1,
    title="Sum rows by an index that repeats",
    sizes={"small": (64, 8)},
    default_size="small",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:add",
    reference=f"{CALLS}:reference",
    outputs=("sums",),
    fixed=(0,),
    variants=(Variant(name="compiled", call=f"{CALLS}:add", dynamic=False, fullgraph=True),),
)
WORKLOADS: Final = (WORKLOAD,)
