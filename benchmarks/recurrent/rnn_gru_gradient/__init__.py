"""Backpropagation through time: the chain of small matrix multiplications, in reverse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cuda import cuda_variants
from benchmarks.recurrent import rnn_gru
from ivhl.workload import Cost, Variant, Workload

if TYPE_CHECKING:
    from benchmarks.recurrent.rnn_gru import Size

CALLS = "benchmarks.recurrent.rnn_gru_gradient.calls"


def cost(size: Size) -> Cost:
    """Count the matrix multiplications: three gates forward, and per gate two backward.

    Of those two, the one that goes back to the step before is over states only. Inputs, weights,
    the state at the start and the projection are read and the gradients written once in float32.
    """
    rows = size.n_steps * size.batch
    wide = size.n_inputs + size.n_hidden
    weights = 3 * size.n_hidden * (wide + 1)
    products = 2.0 * rows * 3 * size.n_hidden * (2 * wide + size.n_hidden)
    return Cost(
        flops=products,
        bytes=4.0 * (rows * size.n_inputs + 2 * weights + 2 * size.batch * size.n_hidden),
        memory=200.0 * (rows * wide + weights),
    )


WORKLOAD = Workload(
    name="ops.rnn_gru_gradient",
    version=1,
    title="Gradient of the last state of a gated recurrent unit by its weights",
    sizes=rnn_gru.WORKLOAD.sizes,
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:gradient",
    reference="benchmarks.recurrent.rnn_gru_gradient.reference:reference",
    outputs=("by_w_z", "by_w_r", "by_w_h", "by_b_z", "by_b_r", "by_b_h"),
    core="fused-compiled",
    variants=(
        # One graph of the whole sequence would unroll the steps, and recompile for every length.
        Variant(
            name="naive-compiled", call=f"{CALLS}:make_gradient", compiles="parts", dynamic=False
        ),
        Variant(
            name="fused-compiled",
            call=f"{CALLS}:make_fused_gradient",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        *cuda_variants(
            "fused",
            call=f"{CALLS}:make_fused_gradient",
            compiles="parts",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Cho et al., arXiv:1406.1078, eqs. (5) to (8), and the chain rule",
)
