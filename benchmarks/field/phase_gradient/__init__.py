"""Gradient of the phase of a field on a cube: one atan2 per point, then differences."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.field.phase_gradient.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Points per axis of the cube."""

    n: int


def cost(size: Size) -> Cost:
    """Count 40 operations per point: 25 for atan2, the rest for three differences.

    The complex field is read and three planes are written. Reference and eager hold about 200 bytes
    a point.
    """
    n_values = size.n**3
    return Cost(flops=40.0 * n_values, bytes=20.0 * n_values, memory=200.0 * n_values)


WORKLOAD = Workload(
    name="ops.phase_gradient",
    version=1,
    title="Gradient of the phase of a complex field on a cube",
    sizes={"small": Size(16), "medium": Size(32), "large": Size(64), "extreme": Size(128)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager="ivhl.ops.complex_field:phase_gradient",
    reference="benchmarks.field.phase_gradient.reference:reference",
    outputs=("along_x", "along_y", "along_z"),
    core="real-compiled",
    variants=(
        Variant(
            name="naive-compiled", call="ivhl.ops.complex_field:phase_gradient", dynamic=False
        ),
        Variant(
            name="real-compiled",
            call="ivhl.ops.complex_field:make_phase_gradient",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        *cuda_variants(
            "real",
            call="ivhl.ops.complex_field:make_phase_gradient",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Zynerji/iVHL, scripts/compiled_ops.py, compute_phase_gradient",
)
