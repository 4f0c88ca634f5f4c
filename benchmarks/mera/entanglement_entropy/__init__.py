"""Entropy of one half of a random pure state of qubits."""

from __future__ import annotations

from dataclasses import dataclass

from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.mera.entanglement_entropy.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Number of qubits; the matrix of the state has ``2^(n_qubits / 2)`` rows and columns."""

    n_qubits: int


def cost(size: Size) -> Cost:
    """Count ``8/3 m^3`` complex operations of four real ones, to bring the state to two diagonals.

    The rest of the singular values costs less. The state is read once in complex64.
    """
    m = 2.0 ** (size.n_qubits // 2)
    n_values = 2.0**size.n_qubits
    return Cost(flops=4.0 * 8.0 / 3.0 * m**3, bytes=8.0 * n_values, memory=200.0 * n_values)


WORKLOAD = Workload(
    name="ops.entanglement_entropy",
    version=1,
    title="Entanglement entropy of half of a random pure state",
    sizes={"small": Size(8), "medium": Size(12), "large": Size(16), "extreme": Size(20)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:entropy",
    reference="benchmarks.mera.entanglement_entropy.reference:reference",
    outputs=("entropy",),
    core="real-compiled",
    # The singular values are a call of LAPACK or cuSOLVER in all of them, and nearly all the time:
    # no mode of the compiler changes that, and a CUDA graph cannot hold it.
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:entropy", dynamic=False),
        Variant(
            name="real-compiled",
            call=f"{CALLS}:make_entropy",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Zynerji/iVHL, scripts/compiled_ops.py, compute_entanglement_entropy_svd",
)
