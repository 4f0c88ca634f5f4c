"""One step of a gated recurrent unit: three small matrix multiplications, one after the others."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.recurrent.rnn_step_gru.calls"
FUSED = "ivhl.ops.gru.cell:fused_step"


@dataclass(frozen=True, slots=True)
class Size:
    """Sequences at once, inputs and states."""

    batch: int
    n_inputs: int
    n_hidden: int


def cost(size: Size) -> Cost:
    """Count the matrix multiplications of three gates.

    Inputs, states and weights move once in float32.
    """
    wide = size.n_inputs + size.n_hidden
    weights = 3 * size.n_hidden * (wide + 1)
    numbers = size.batch * (wide + size.n_hidden) + weights
    return Cost(
        flops=2.0 * size.batch * 3 * size.n_hidden * wide,
        bytes=4.0 * numbers,
        memory=100.0 * numbers,
    )


WORKLOAD = Workload(
    name="ops.rnn_step_gru",
    version=1,
    title="One step of a gated recurrent unit, reset before the product",
    sizes={
        "small": Size(8, 16, 32),
        "medium": Size(16, 32, 64),
        "large": Size(32, 64, 128),
        "extreme": Size(64, 128, 512),
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager="ivhl.ops.gru.cell:gru_step",
    reference=f"{CALLS}:reference",
    outputs=("state",),
    core="fused-compiled",
    variants=(
        Variant(
            name="naive-compiled", call="ivhl.ops.gru.cell:gru_step", dynamic=False, fullgraph=True
        ),
        Variant(name="fused-compiled", call=FUSED, dynamic=False, fullgraph=True),
        Variant(name="fused-dynamic", call=FUSED, dynamic=True, fullgraph=True),
        *cuda_variants("fused", call=FUSED, fullgraph=True),
    ),
    cost=f"{__name__}:cost",
    source="Cho et al., arXiv:1406.1078, eqs. (5) to (8)",
)
