"""One move of causal triangulations, with its probability, in many lattices at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.triangulation import cdt_sweep
from ivhl.workload import Cost, Variant, Workload

if TYPE_CHECKING:
    from benchmarks.triangulation.cdt_sweep import Size

CALLS = "benchmarks.triangulation.cdt_propose_moves.calls"


def cost(size: Size) -> Cost:
    """Count the bytes: lattices of int32 are read and written once; they hold integers.

    Kind and choice are read in int64, and the probability is written in float64.
    """
    lattices = 4.0 * 12 * size.capacity * size.n_lattices
    return Cost(
        flops=0.0,
        bytes=2.0 * lattices + 24.0 * size.n_lattices,
        memory=cdt_sweep.cost(size).memory,
    )


WORKLOAD = Workload(
    name="ops.cdt_propose_moves",
    version=1,
    title="A move of causal triangulations and its probability, many lattices at once",
    sizes=cdt_sweep.WORKLOAD.sizes,
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:propose_moves",
    reference=f"{CALLS}:reference",
    outputs=("acceptance", "volume_profile", "candidates"),
    core="naive-compiled",
    variants=(
        Variant(
            name="naive-compiled",
            call=f"{CALLS}:make_propose_moves",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="naive-dynamic",
            call=f"{CALLS}:make_propose_moves",
            compiles="parts",
            dynamic=True,
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Brunekreef, Gorlich and Loll, arXiv:2310.16744, section 2",
)
