"""The gated recurrent unit in bfloat16: half the bytes, and bfloat16 matrix multiplications.

Everything but the precision is as in ``ops.rnn_gru``. Accuracy is judged against the error of eager
in bfloat16.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.recurrent import rnn_gru

if TYPE_CHECKING:
    from ivhl.workload import Cost


def cost(size: rnn_gru.Size) -> Cost:
    """Halve the bytes of float32; the reference, and so the memory, is the same."""
    single = rnn_gru.cost(size)
    return replace(single, bytes=0.5 * single.bytes)


WORKLOAD = replace(
    rnn_gru.WORKLOAD,
    name="ops.rnn_gru_bf16",
    core="fused-compiled",
    title="States of a gated recurrent unit over a sequence, in bfloat16",
    dtype="bfloat16",
    cost=f"{__name__}:cost",
)
