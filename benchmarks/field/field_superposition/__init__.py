"""Waves of many sources at many points: one pass of arithmetic, nothing but trigonometry."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.field.field_superposition.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """How many points, and how many sources act on each of them."""

    n_points: int
    n_sources: int


def cost(size: Size) -> Cost:
    """Count 48 operations for each pair of point and source, polynomials for sine and cosine in it.

    Points, six numbers per source and the complex field must move in float32. Eager holds about
    four complex arrays of all pairs.
    """
    pairs = size.n_points * size.n_sources
    return Cost(
        flops=48.0 * pairs,
        bytes=12.0 * size.n_points + 24.0 * size.n_sources + 8.0 * size.n_points,
        memory=40.0 * pairs + 100.0 * size.n_points,
    )


WORKLOAD = Workload(
    name="ops.field_superposition",
    version=1,
    title="Superposition of monopole waves of many sources on a set of points",
    sizes={
        "small": Size(512, 10),
        "medium": Size(2048, 20),
        "large": Size(8192, 50),
        "extreme": Size(32768, 100),
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager="ivhl.ops.field:field_superposition",
    reference="benchmarks.field.field_superposition.reference:reference",
    outputs=("field",),
    core="rows-compiled",
    variants=(
        Variant(name="naive-compiled", call="ivhl.ops.field:field_superposition", dynamic=False),
        Variant(
            name="real-compiled",
            call="ivhl.ops.field:make_field_superposition",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="real-dynamic",
            call="ivhl.ops.field:make_field_superposition",
            compiles="parts",
            dynamic=True,
            fullgraph=True,
        ),
        # Coordinates in rows and the field in planes: what a simulation keeps from step to step.
        Variant(
            name="rows-compiled",
            call=f"{CALLS}:planes_of_rows",
            dynamic=False,
            fullgraph=True,
            prepare=f"{CALLS}:in_rows",
            finish=f"{CALLS}:as_complex",
        ),
        *cuda_variants(
            "real",
            call="ivhl.ops.field:make_field_superposition",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Zynerji/iVHL, scripts/compiled_ops.py, compute_field_superposition",
)
