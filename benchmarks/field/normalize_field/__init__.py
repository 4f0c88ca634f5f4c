"""A field of norm 1: a sum over all points, then each point once more."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.field.normalize_field.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Points per axis of the cube."""

    n: int


def cost(size: Size) -> Cost:
    """Count 6 operations per point; a complex64 is read and one written.

    Between sum and quotient it need not move again while it fits in a cache. Reference and eager
    hold about 80 bytes a point.
    """
    n_values = size.n**3
    return Cost(flops=6.0 * n_values, bytes=16.0 * n_values, memory=80.0 * n_values)


WORKLOAD = Workload(
    name="ops.normalize_field",
    version=1,
    title="A complex field on a cube, made of norm 1",
    sizes={"small": Size(16), "medium": Size(32), "large": Size(64), "extreme": Size(128)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:normalize",
    reference="benchmarks.field.normalize_field.reference:reference",
    outputs=("field",),
    core="real-compiled",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:normalize", dynamic=False),
        Variant(
            name="real-compiled",
            call=f"{CALLS}:make_normalize",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        *cuda_variants(
            "real",
            call=f"{CALLS}:make_normalize",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Zynerji/iVHL, scripts/compiled_ops.py, normalize_field",
)
