"""Time evolution of a condensate: eager by Fourier transforms, compiled by a short stencil."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.condensate.gp_evolve.calls"

DT: Final = 0.01
M2: Final = -0.5
LAM: Final = 0.1
RANK: Final = 4
N_STEPS: Final = 4


@dataclass(frozen=True, slots=True)
class Size:
    """Points per axis of the cube."""

    n: int


def cost(size: Size) -> Cost:
    """Count 112 operations per point and step: 60 for the hops, 52 for the potential.

    The condensate is read and written once in complex64: as long as it fits in a cache, steps in
    between need not move it. Reference and eager hold about 200 bytes a point.
    """
    n_values = size.n**3
    return Cost(flops=112.0 * N_STEPS * n_values, bytes=16.0 * n_values, memory=200.0 * n_values)


WORKLOAD = Workload(
    name="ops.gp_evolve",
    version=1,
    title="Four Strang steps of the Gross-Pitaevskii equation on a periodic cube",
    sizes={"small": Size(16), "medium": Size(32), "large": Size(64), "extreme": Size(128)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:evolve",
    reference="benchmarks.condensate.gp_evolve.reference:reference",
    outputs=("phi",),
    core="real-compiled",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:evolve", dynamic=False),
        Variant(
            name="real-compiled",
            call=f"{CALLS}:make_evolve",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="real-dynamic",
            call=f"{CALLS}:make_evolve",
            compiles="parts",
            dynamic=True,
            fullgraph=True,
        ),
        *cuda_variants(
            "real",
            call=f"{CALLS}:make_evolve",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Bao, Jaksch and Markowich, J. Comput. Phys. 187, 318 (2003); equation of Zynerji/iVHL",
)
