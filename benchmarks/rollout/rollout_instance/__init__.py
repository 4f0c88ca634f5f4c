"""Operators with instance norms evolve realisations for a few steps, by the residual policy.

The variants are the phases of the strategy that the operation comes from: eager, compiled, in mixed
precision. Its choice of operators is another model, ``rollout.group``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.rollout.rollout_instance.calls"
N_CHANNELS: Final = 3
DEPTH: Final = 2
DT: Final = 0.1


@dataclass(frozen=True, slots=True)
class Size:
    """Operators, their realisations, steps, rows (and columns), channels of the first layer."""

    n_operators: int
    n_realisations: int
    n_steps: int
    n_rows: int
    width: int


def cost(size: Size) -> Cost:
    """Count the convolutions: the stem, a block of two, one of two and a projection that doubles.

    Weights are read, noise of every step and the initial states too, the last states written once.
    """
    w = size.width
    weights = 9 * (N_CHANNELS * w + 2 * w * w + 2 * w * w + 4 * w * w) + 2 * w * w + 2 * w * 3
    cells = size.n_operators * size.n_realisations * size.n_rows**2
    fields = N_CHANNELS * cells * (size.n_steps + 2)
    return Cost(
        flops=2.0 * weights * cells * size.n_steps,
        bytes=4.0 * (fields + size.n_operators * weights),
        # The reference keeps nine shifted copies of a layer in float64.
        memory=8.0 * (60.0 * w * cells + 10.0 * fields + 10.0 * size.n_operators * weights),
    )


def phases(calls: str) -> tuple[Variant, ...]:
    """Return the variants of an architecture.

    Args:
        calls: Module with ``make_naive``, ``make_evolve``, ``make_mixed`` and ``make_exported``.
    """
    evolve = f"{calls}:make_evolve"
    return (
        Variant(
            name="naive-compiled",
            call=f"{calls}:make_naive",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="evolve-compiled", call=evolve, compiles="parts", dynamic=False, fullgraph=True
        ),
        *cuda_variants("evolve", call=evolve, compiles="parts", fullgraph=True),
        Variant(
            name="mixed-compiled",
            call=f"{calls}:make_mixed",
            compiles="parts",
            dtype="bfloat16",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="aotinductor",
            call=f"{calls}:make_exported",
            compiles="parts",
            engine="aotinductor",
        ),
    )


WORKLOAD = Workload(
    name="rollout.instance",
    version=1,
    title="Steps of convolutional operators with instance norms, residual policy, noise",
    sizes={
        "small": Size(2, 1, 2, 16, 8),
        "medium": Size(2, 2, 4, 32, 16),
        "large": Size(2, 5, 4, 64, 16),
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:steps",
    reference="benchmarks.rollout.rollout_instance.reference:reference",
    outputs=("state",),
    core="evolve-compiled",
    variants=phases(CALLS),
    cost=f"{__name__}:cost",
    source="dgabriele/spinlock, docs/optimization/torch_compile_strategy.md",
)
