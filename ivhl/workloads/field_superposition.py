"""Waves of many sources at many points: one pass of arithmetic, nothing but trigonometry."""

from __future__ import annotations

from dataclasses import dataclass

from ivhl.workload import Variant, Workload

CALLS = "ivhl.workloads.field_superposition_calls"


@dataclass(frozen=True, slots=True)
class Size:
    """How many points, and how many sources act on each of them."""

    n_points: int
    n_sources: int


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
    reference="ivhl.workloads.field_superposition_reference:reference",
    outputs=("field",),
    variants=(
        Variant(name="naive-compiled", call="ivhl.ops.field:field_superposition"),
        Variant(
            name="real-compiled",
            call="ivhl.ops.field:make_field_superposition",
            compiles="parts",
            fullgraph=True,
        ),
        Variant(
            name="real-reduce-overhead",
            call="ivhl.ops.field:make_field_superposition",
            compiles="parts",
            mode="reduce-overhead",
            fullgraph=True,
            devices=("cuda",),
        ),
        # Without a matrix product there is nothing to tune on a CPU.
        Variant(
            name="real-max-autotune",
            call="ivhl.ops.field:make_field_superposition",
            compiles="parts",
            mode="max-autotune",
            fullgraph=True,
            devices=("cuda",),
        ),
    ),
    source="Zynerji/iVHL, scripts/compiled_ops.py, compute_field_superposition",
)
