"""The backward pass too: gradients of a projection of the tokens by tokens and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.surgical import stack
from ivhl.workload import Cost, Variant

if TYPE_CHECKING:
    from benchmarks.surgical.stack import Size

CALLS = "benchmarks.surgical.stack_gradient.calls"


def cost(size: Size) -> Cost:
    """Count the forward pass three times; the backward pass multiplies twice for each matrix."""
    forward = stack.cost(size)
    return Cost(flops=3.0 * forward.flops, bytes=2.0 * forward.bytes, memory=3.0 * forward.memory)


WORKLOAD = replace(
    stack.WORKLOAD,
    name="surgical.stack_gradient",
    title="Gradients of transformer layers by tokens and by the weights of the first layer",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:gradient",
    reference="benchmarks.surgical.stack_gradient.reference:reference",
    outputs=("by_tokens", "by_qkv", "by_gain", "by_down"),
    core="sdpa-compiled",
    variants=tuple(
        Variant(
            name=f"{name}-compiled",
            call=f"{CALLS}:make_{name}",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        )
        for name in ("naive", "sdpa")
    ),
    cost=f"{__name__}:cost",
)
