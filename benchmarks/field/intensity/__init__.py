"""Intensity of a field on a cube: one square per point, bound by reading and writing."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.field.intensity.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Points per axis of the cube."""

    n: int


def cost(size: Size) -> Cost:
    """Count 3 operations per point; a complex64 is read and a float32 written.

    Reference and eager hold about 60 bytes a point.
    """
    n_values = size.n**3
    return Cost(flops=3.0 * n_values, bytes=12.0 * n_values, memory=60.0 * n_values)


WORKLOAD = Workload(
    name="ops.intensity",
    version=1,
    title="Intensity of a complex field on a cube",
    sizes={"small": Size(16), "medium": Size(32), "large": Size(64), "extreme": Size(128)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:intensity",
    reference="benchmarks.field.intensity.reference:reference",
    outputs=("intensity",),
    core="real-compiled",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:intensity", dynamic=False),
        Variant(
            name="real-compiled",
            call=f"{CALLS}:make_intensity",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        *cuda_variants(
            "real",
            call=f"{CALLS}:make_intensity",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Zynerji/iVHL, scripts/compiled_ops.py, compute_intensity",
)
