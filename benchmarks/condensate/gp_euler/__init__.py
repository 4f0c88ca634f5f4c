"""One step of a condensate by explicit Euler: a stencil, a power, and complex numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.condensate.gp_euler.calls"

DT: Final = 0.01
MASS_SQ: Final = -0.5
LAMBDA_COUPLING: Final = 0.1
RANK: Final = 3


@dataclass(frozen=True, slots=True)
class Size:
    """Points per axis of the cube."""

    n: int


def cost(size: Size) -> Cost:
    """Count 30 operations per point: 12 for the neighbours, the rest for interaction and update.

    The condensate is read and written once in complex64. Reference and eager hold about 200 bytes
    a point.
    """
    n_values = size.n**3
    return Cost(flops=30.0 * n_values, bytes=16.0 * n_values, memory=200.0 * n_values)


WORKLOAD = Workload(
    name="ops.gp_euler",
    version=1,
    title="One explicit Euler step of a condensate on a periodic cube",
    sizes={"small": Size(16), "medium": Size(32), "large": Size(64), "extreme": Size(128)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:step",
    reference="benchmarks.condensate.gp_euler.reference:reference",
    outputs=("phi",),
    core="planes-compiled",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:step", dynamic=False),
        Variant(
            name="real-compiled",
            call=f"{CALLS}:make_step",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="real-dynamic",
            call=f"{CALLS}:make_step",
            compiles="parts",
            dynamic=True,
            fullgraph=True,
        ),
        # Takes real and imaginary planes, which a simulation would keep between steps.
        Variant(
            name="planes-compiled",
            call=f"{CALLS}:make_planes_step",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
            prepare=f"{CALLS}:as_planes",
            finish=f"{CALLS}:as_complex",
        ),
        *cuda_variants(
            "real",
            call=f"{CALLS}:make_step",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Zynerji/iVHL, scripts/compiled_ops.py, evolve_condensate_gp",
)
