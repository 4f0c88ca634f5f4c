"""Time evolution of a condensate with steps too long for a stencil: Fourier transforms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.condensate.gp_fourier.calls"

DT: Final = 0.7


@dataclass(frozen=True, slots=True)
class Size:
    """Points per axis of the cube."""

    n: int


def cost(size: Size) -> Cost:
    """Count two transforms of ``5 N log2 N`` operations a step, and 63 per point for the turns.

    Four steps have five turns by the potential, of 52 operations, and four by the dispersion, of 11
    (docs of ``ops.gp_evolve`` count alike). The condensate is read and written once in complex64.
    """
    n_values = size.n**3
    transforms = 4 * 2 * 5.0 * n_values * math.log2(n_values)
    turns = (5 * 52.0 + 4 * 11.0) * n_values
    return Cost(flops=transforms + turns, bytes=16.0 * n_values, memory=200.0 * n_values)


WORKLOAD = Workload(
    name="ops.gp_fourier",
    version=1,
    title="Four long Strang steps of the Gross-Pitaevskii equation, by Fourier transforms",
    sizes={"small": Size(16), "medium": Size(32), "large": Size(64), "extreme": Size(128)},
    default_size="medium",
    make_inputs="benchmarks.condensate.gp_evolve.calls:make_inputs",
    eager=f"{CALLS}:evolve",
    reference=f"{CALLS}:reference",
    outputs=("phi",),
    core="real-compiled",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:evolve", dynamic=False),
        # The transforms stay outside the graphs: Inductor has no code for them. The compiled parts
        # work on real planes.
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
