"""A layer norm, GELU and a residual written out operation by operation: what fusion is for."""

from __future__ import annotations

from dataclasses import dataclass

from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.hotpath.norm_gelu.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Rows and their width."""

    n_rows: int
    n_wide: int


def cost(size: Size) -> Cost:
    """Count 16 operations for each number; numbers are read and written once."""
    numbers = size.n_rows * size.n_wide
    return Cost(
        flops=16.0 * numbers, bytes=8.0 * (numbers + size.n_wide), memory=150.0 * numbers + 1e6
    )


WORKLOAD = Workload(
    name="hotpath.norm_gelu",
    version=1,
    title="Layer norm, GELU and residual, operation by operation",
    sizes={"small": Size(16, 64), "medium": Size(256, 512), "large": Size(4096, 1024)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:norm_gelu",
    reference="benchmarks.hotpath.norm_gelu.reference:reference",
    outputs=("y",),
    core="hot",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:norm_gelu", dynamic=False, fullgraph=True),
        # Hot paths have not been tried on a GPU.
        Variant(name="hot", call=f"{CALLS}:norm_gelu", engine="hotpath", devices=("cpu",)),
    ),
    cost=f"{__name__}:cost",
)
