"""Product of vortices at many points: atan2, tanh, and two reductions."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.vortex.vortex_field.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Number of points, and of vortices that act on each of them."""

    n_points: int
    n_vortices: int


def cost(size: Size) -> Cost:
    """Count 60 operations for each pair of point and vortex, polynomials for both angles in it.

    Points, four numbers per vortex and the complex field must move in float32. Eager holds about
    four complex arrays of all pairs.
    """
    pairs = size.n_points * size.n_vortices
    return Cost(
        flops=60.0 * pairs,
        bytes=20.0 * size.n_points + 16.0 * size.n_vortices,
        memory=80.0 * pairs + 100.0 * size.n_points,
    )


WORKLOAD = Workload(
    name="ops.vortex_field",
    version=1,
    title="Product of vortices with cores on a set of points",
    sizes={
        "small": Size(512, 3),
        "medium": Size(2048, 5),
        "large": Size(8192, 10),
        "extreme": Size(32768, 20),
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager="ivhl.ops.vortex:vortex_field",
    reference="benchmarks.vortex.vortex_field.reference:reference",
    outputs=("field",),
    core="whole-charges-compiled",
    variants=(
        Variant(name="naive-compiled", call="ivhl.ops.vortex:vortex_field", dynamic=False),
        Variant(
            name="real-compiled",
            call="ivhl.ops.vortex:make_vortex_field",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="real-dynamic",
            call="ivhl.ops.vortex:make_vortex_field",
            compiles="parts",
            dynamic=True,
            fullgraph=True,
        ),
        # Coordinates in rows and integer charges: as a simulation with fixed points would keep them.
        Variant(
            name="whole-charges-compiled",
            call="ivhl.ops.vortex:whole_vortex_planes",
            dynamic=False,
            fullgraph=True,
            prepare=f"{CALLS}:points_in_rows",
            finish=f"{CALLS}:as_complex",
        ),
        *cuda_variants(
            "real",
            call="ivhl.ops.vortex:make_vortex_field",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Zynerji/iVHL, scripts/compiled_ops.py, compute_vortex_field",
)
