"""Gradient of a field's brightness by its sources: sums over points in the backward pass."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.field.field_gradient.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Number of points, and of sources that act on each of them."""

    n_points: int
    n_sources: int


def cost(size: Size) -> Cost:
    """Count 120 operations for each pair: 48 for its wave, 48 for the backward pass, 24 for sums.

    Points with their weights, six numbers per source and five derivatives must move in float32.
    Eager stores about ten real tensors of all pairs for the backward pass.
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
    reference="benchmarks.field.field_gradient.reference:reference",
    outputs=("by_position", "by_amplitude", "by_phase"),
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
    cost=f"{__name__}:cost",
    source="derivative of Zynerji/iVHL, scripts/compiled_ops.py, compute_field_superposition",
)
