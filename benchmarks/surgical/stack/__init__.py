"""Transformer layers forward: the end-to-end model of the document, without FP8.

The variants are the plans of ``ivhl.surgical``; ``naive-compiled`` is the eager code under
``torch.compile``, linear layers included: what one compiles by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.surgical.configuration import SIZES, StackConfiguration
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.surgical.stack.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Layers, width, heads, width of the feed-forward network, sequences, tokens of a sequence."""

    n_layers: int
    n_hidden: int
    n_heads: int
    n_inner: int
    n_batch: int
    n_tokens: int

    @property
    def configuration(self) -> StackConfiguration:
        """The architecture, with layer norms and the exact GELU as in the document."""
        return StackConfiguration(
            n_layers=self.n_layers,
            n_hidden=self.n_hidden,
            n_heads=self.n_heads,
            n_inner=self.n_inner,
        )


def size_of(name: str) -> Size:
    """Return a size of ``ivhl.surgical``."""
    size = SIZES[name]
    c = size.configuration
    return Size(c.n_layers, c.n_hidden, c.n_heads, c.n_inner, size.n_batch, size.n_tokens)


def cost(size: Size) -> Cost:
    """Count the matrix multiplications; weights and tokens are read, tokens written once."""
    tokens = size.n_batch * size.n_tokens * size.n_hidden
    c = size.configuration
    weights = c.n_layers * sum(n_out * n_in for n_out, n_in in c.linears.values())
    scores = size.n_batch * size.n_heads * size.n_tokens**2
    return Cost(
        flops=c.flops(size.n_batch, size.n_tokens),
        bytes=4.0 * (weights + 2 * tokens),
        memory=8.0 * (6.0 * weights + 40.0 * tokens + 6.0 * scores),
    )


def plan_variant(name: str) -> Variant:
    """Return the variant that runs a plan."""
    return Variant(
        name=f"{name}-compiled",
        call=f"{CALLS}:make_{name}",
        compiles="parts",
        dynamic=False,
        fullgraph=True,
    )


WORKLOAD = Workload(
    name="surgical.stack",
    version=1,
    title="Transformer layers with rotary embedding, forward",
    sizes={name: size_of(name) for name in ("small", "medium", "large")},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:stack",
    reference="benchmarks.surgical.stack.reference:reference",
    outputs=("tokens",),
    core="sdpa-compiled",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:stack", dynamic=False, fullgraph=True),
        plan_variant("surgical"),
        plan_variant("pointwise"),
        plan_variant("whole"),
        plan_variant("sdpa"),
        *cuda_variants("sdpa", call=f"{CALLS}:make_sdpa", compiles="parts", fullgraph=True),
    ),
    fixed=(0,),
    cost=f"{__name__}:cost",
    source="sbhavani/TransformerEngine, benchmarks/torch_compile/test_end_to_end_surgical.py",
)
