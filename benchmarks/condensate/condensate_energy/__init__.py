"""The conserved energy of a condensate: forward differences, mass and interaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.condensate.condensate_energy.calls"

MASS_SQ: Final = -0.5
LAMBDA_COUPLING: Final = 0.1
RANK: Final = 3


@dataclass(frozen=True, slots=True)
class Size:
    """Points per axis of the cube."""

    n: int


def cost(size: Size) -> Cost:
    """Count 25 operations per point: 8 for mass and interaction, the rest for three differences.

    The condensate is read once in complex64. Reference and eager hold about 200 bytes a point.
    """
    n_values = size.n**3
    return Cost(flops=25.0 * n_values, bytes=8.0 * n_values, memory=200.0 * n_values)


WORKLOAD = Workload(
    name="ops.condensate_energy",
    version=1,
    title="Energy of a condensate on a periodic cube, per point",
    sizes={"small": Size(16), "medium": Size(32), "large": Size(64), "extreme": Size(128)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:energy",
    reference="benchmarks.condensate.condensate_energy.reference:reference",
    outputs=("energy",),
    core="real-compiled",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:energy", dynamic=False),
        Variant(
            name="real-compiled",
            call=f"{CALLS}:make_energy",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        *cuda_variants(
            "real",
            call=f"{CALLS}:make_energy",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    # One number, as in ops.condensate_potential.
    tolerance=1e-5,
    cost=f"{__name__}:cost",
    source="Energy whose equation is that of Zynerji/iVHL, evolve_condensate_gp",
)
