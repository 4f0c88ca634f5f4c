"""A gated recurrent unit over a sequence: small matrix multiplications, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.recurrent.rnn_gru.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Steps of the sequence, sequences at once, inputs and states per step."""

    n_steps: int
    batch: int
    n_inputs: int
    n_hidden: int


def cost(size: Size) -> Cost:
    """Count the matrix multiplications: three gates, of inputs and of states.

    Inputs, weights and the state at the start are read and the states written once in float32.
    """
    rows = size.n_steps * size.batch
    wide = size.n_inputs + size.n_hidden
    weights = 3 * size.n_hidden * (wide + 1)
    return Cost(
        flops=2.0 * rows * 3 * size.n_hidden * wide,
        bytes=4.0 * (rows * wide + weights + size.batch * size.n_hidden),
        memory=100.0 * (rows * wide + weights),
    )


WORKLOAD = Workload(
    name="ops.rnn_gru",
    version=1,
    title="States of a gated recurrent unit over a sequence, reset before the product",
    sizes={
        "small": Size(16, 8, 16, 32),
        "medium": Size(32, 16, 32, 64),
        "large": Size(64, 32, 64, 128),
        "extreme": Size(128, 64, 128, 512),
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager="ivhl.ops.gru.sequence:gru_sequence",
    reference="benchmarks.recurrent.rnn_gru.reference:reference",
    outputs=("states",),
    core="fused-compiled",
    variants=(
        # One graph of the whole sequence would unroll the steps, and recompile for every length.
        Variant(
            name="naive-compiled",
            call="ivhl.ops.gru.sequence:make_gru_sequence",
            compiles="parts",
            dynamic=False,
        ),
        Variant(
            name="fused-compiled",
            call="ivhl.ops.gru.sequence:make_rnn_gru",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        *cuda_variants(
            "fused",
            call="ivhl.ops.gru.sequence:make_rnn_gru",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Cho et al., arXiv:1406.1078, eqs. (5) to (8)",
)
