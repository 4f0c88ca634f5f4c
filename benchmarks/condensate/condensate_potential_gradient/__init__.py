"""The gradient of a condensate's potential: a stencil and its adjoint, without a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.condensate.condensate_potential_gradient.calls"

MASS_SQ: Final = -0.5
LAMBDA_COUPLING: Final = 0.1
RANK: Final = 3


@dataclass(frozen=True, slots=True)
class Size:
    """Points per axis of the cube."""

    n: int


def cost(size: Size) -> Cost:
    """Count 36 operations per point: 12 for mass and interaction, 4 for each difference's adjoint.

    The condensate is read and the gradient written once in complex64. Reference and eager hold
    about 300 bytes a point.
    """
    n_values = size.n**3
    return Cost(flops=36.0 * n_values, bytes=16.0 * n_values, memory=300.0 * n_values)


WORKLOAD = Workload(
    name="ops.condensate_potential_gradient",
    version=1,
    title="Gradient of the potential of a condensate on an open cube",
    sizes={"small": Size(16), "medium": Size(32), "large": Size(64), "extreme": Size(128)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:gradient",
    reference="benchmarks.condensate.condensate_potential_gradient.reference:reference",
    outputs=("gradient",),
    core="adjoint-compiled",
    variants=(
        Variant(
            name="naive-compiled", call=f"{CALLS}:make_gradient", compiles="parts", dynamic=False
        ),
        Variant(
            name="real-compiled",
            call=f"{CALLS}:make_real_gradient",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="adjoint-compiled",
            call=f"{CALLS}:make_adjoint_gradient",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        *cuda_variants(
            "adjoint",
            call=f"{CALLS}:make_adjoint_gradient",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    # The interaction contributes a thousandth of the gradient.
    tolerance=1e-6,
    cost=f"{__name__}:cost",
    source="derivative of Zynerji/iVHL, scripts/compiled_ops.py, compute_condensate_potential",
)
