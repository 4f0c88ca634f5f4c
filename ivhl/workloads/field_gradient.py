"""How the brightness of a field changes with its sources: sums over points, backwards."""

from __future__ import annotations

from dataclasses import dataclass

from ivhl.workload import Cost, Variant, Workload
from ivhl.workloads.cuda import cuda_variants

CALLS = "ivhl.workloads.field_gradient_calls"


@dataclass(frozen=True, slots=True)
class Size:
    """How many points, and how many sources act on each of them."""

    n_points: int
    n_sources: int


def cost(size: Size) -> Cost:
    """Count 120 operations for each pair: 48 for its wave, the same again backwards, 24 for sums.

    Points with their weights, six numbers per source and five derivatives must move in float32.
    Eager keeps about ten real arrays of all pairs for the way back.
    """
    pairs = size.n_points * size.n_sources
    return Cost(
        flops=120.0 * pairs,
        bytes=16.0 * size.n_points + 44.0 * size.n_sources,
        memory=100.0 * pairs + 100.0 * size.n_points,
    )


WORKLOAD = Workload(
    name="ops.field_gradient",
    version=1,
    title="Gradient of the weighted intensity of a field by its sources",
    sizes={
        "small": Size(512, 10),
        "medium": Size(2048, 20),
        "large": Size(8192, 50),
        "extreme": Size(32768, 100),
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:gradient",
    reference="ivhl.workloads.field_gradient_reference:reference",
    outputs=("by_position", "by_amplitude", "by_phase"),
    core="adjoint-compiled",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:make_gradient", compiles="parts"),
        Variant(
            name="real-compiled",
            call=f"{CALLS}:make_real_gradient",
            compiles="parts",
            fullgraph=True,
        ),
        Variant(
            name="adjoint-compiled",
            call=f"{CALLS}:make_adjoint_gradient",
            compiles="parts",
            fullgraph=True,
        ),
        *cuda_variants(
            "adjoint",
            call=f"{CALLS}:make_adjoint_gradient",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="derivative of Zynerji/iVHL, scripts/compiled_ops.py, compute_field_superposition",
)
