"""Loss and gradients of the perceptron 784-256-10, the training step of docs/hotpath.md."""

from __future__ import annotations

from typing import Final

from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.hotpath.mlp.calls"
WIDTHS: Final = (784, 256, 10)


def cost(n_batch: int) -> Cost:
    """Count the multiplications: twice forward and three times backward, none by the samples."""
    wide, hidden, out = WIDTHS
    weights = hidden * (wide + 1) + out * (hidden + 1)
    return Cost(
        flops=2.0 * n_batch * (2 * wide * hidden + 3 * hidden * out),
        bytes=4.0 * (2 * weights + n_batch * (wide + out)),
        memory=8.0 * (6.0 * weights + n_batch * (3 * wide + 12 * hidden + 12 * out)),
    )


WORKLOAD = Workload(
    name="hotpath.mlp",
    version=1,
    title="Loss and gradients of the perceptron 784-256-10",
    sizes={"small": 16, "medium": 128, "large": 1024},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:step",
    reference="benchmarks.hotpath.mlp.reference:reference",
    outputs=("loss", "by_w1", "by_b1", "by_w2", "by_b2"),
    core="hot",
    variants=(
        Variant(
            name="naive-compiled",
            call=f"{CALLS}:make_naive",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        # Hot paths have not been tried on a GPU.
        Variant(
            name="hot",
            call=f"{CALLS}:make_hot",
            compiles="parts",
            engine="hotpath",
            devices=("cpu",),
        ),
    ),
    cost=f"{__name__}:cost",
)
