"""Rotary position embedding of queries and keys, alone: the document's isolated operation."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.surgical.rope.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Sequences, heads, tokens of a sequence, width of a head."""

    n_batch: int
    n_heads: int
    n_tokens: int
    n_head: int


def cost(size: Size) -> Cost:
    """Count six operations for each pair of queries and keys; each number is read and written."""
    numbers = size.n_batch * size.n_heads * size.n_tokens * size.n_head
    tables = size.n_tokens * size.n_head
    return Cost(flops=6.0 * numbers, bytes=16.0 * numbers + 4.0 * tables, memory=150.0 * numbers)


WORKLOAD = Workload(
    name="surgical.rope",
    version=1,
    title="Rotary position embedding of queries and keys",
    # The document: 8 sequences, 32 heads, 2048 tokens, 128.
    sizes={
        "small": Size(1, 2, 32, 16),
        "medium": Size(1, 4, 512, 128),
        "large": Size(2, 16, 1024, 128),
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:rope",
    reference="benchmarks.surgical.rope.reference:reference",
    outputs=("queries", "keys"),
    core="rotate-compiled",
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:rope", dynamic=False, fullgraph=True),
        Variant(
            name="rotate-compiled", call=f"{CALLS}:rotate_both", dynamic=False, fullgraph=True
        ),
        Variant(
            name="bf16-compiled",
            call=f"{CALLS}:rotate_both",
            dtype="bfloat16",
            dynamic=False,
            fullgraph=True,
        ),
        *cuda_variants("rotate", call=f"{CALLS}:rotate_both", fullgraph=True),
    ),
    cost=f"{__name__}:cost",
    source="sbhavani/TransformerEngine, benchmarks/torch_compile/test_rope_speedup.py",
)
