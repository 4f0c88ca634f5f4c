"""The potential of a condensate: finite differences, mass and interaction, summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.condensate.condensate_potential.calls"

MASS_SQ: Final = -0.5
LAMBDA_COUPLING: Final = 0.1
RANK: Final = 3


@dataclass(frozen=True, slots=True)
class Size:
    """Points per axis of the cube."""

    n: int


def cost(size: Size) -> Cost:
    """Count 30 operations per point: 10 for mass and interaction, the rest for six differences.

    The condensate is read once in complex64. Reference and eager hold about 200 bytes a point.
    """
    n_values = size.n**3
    return Cost(flops=30.0 * n_values, bytes=8.0 * n_values, memory=200.0 * n_values)


WORKLOAD = Workload(
    name="ops.condensate_potential",
    version=1,
    title="Potential of a condensate on an open cube, per point",
    sizes={"small": Size(16), "medium": Size(32), "large": Size(64), "extreme": Size(128)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:potential",
    reference="benchmarks.condensate.condensate_potential.reference:reference",
    outputs=("potential",),
    core="planes-compiled",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:potential", dynamic=False),
        Variant(
            name="real-compiled",
            call=f"{CALLS}:make_potential",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="real-dynamic",
            call=f"{CALLS}:make_potential",
            compiles="parts",
            dynamic=True,
            fullgraph=True,
        ),
        # Takes real and imaginary planes, which a simulation would keep between steps.
        Variant(
            name="planes-compiled",
            call=f"{CALLS}:make_planes_potential",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
            prepare=f"{CALLS}:as_planes",
        ),
        *cuda_variants(
            "real",
            call=f"{CALLS}:make_potential",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    # The output is one number, whose last digit eager may hit by chance. This allows some fifteen
    # units of that digit, a millionth of the value; the interaction is thousands of times larger.
    tolerance=1e-5,
    cost=f"{__name__}:cost",
    source="Zynerji/iVHL, scripts/compiled_ops.py, compute_condensate_potential",
)
