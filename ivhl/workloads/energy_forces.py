"""Energy and forces of small molecules: many small matrix products and their derivative."""

from __future__ import annotations

from dataclasses import dataclass

from ivhl.workload import Cost, Variant, Workload
from ivhl.workloads.cuda import cuda_variants

CALLS = "ivhl.workloads.energy_forces_calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Name of a molecule in ``energy_forces_calls.MOLECULES``."""

    molecule: str


N_ATOMS = {"H2O": 3, "CH4": 5, "C6H6": 12}


def cost(size: Size) -> Cost:
    """Count the matrix products of three layers, once forward and twice backward.

    Per layer and atom: 8 f^2 for the message, 12 f^2 to mix vectors, 10 f^2 for the update, and for
    each pair of atoms 120 f for the filter, with f = 128 features. 589,185 weights are read once.
    """
    f, n_atoms = 128, N_ATOMS[size.molecule]
    forward = 3.0 * (30.0 * n_atoms * f**2 + 120.0 * n_atoms**2 * f)
    return Cost(flops=3.0 * forward, bytes=4.0 * 589_185, memory=100.0 * 4.0 * 589_185)


WORKLOAD = Workload(
    name="mlff.energy_forces",
    version=1,
    title="Energy and forces of one molecule by PaiNN with random weights",
    sizes={"small": Size("H2O"), "medium": Size("CH4"), "large": Size("C6H6")},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager="ivhl.mlff.painn:energy_forces",
    reference="ivhl.workloads.energy_forces_reference:reference",
    outputs=("energy", "forces"),
    variants=(
        Variant(
            name="naive-compiled", call="ivhl.mlff.painn:make_energy_forces", compiles="parts"
        ),
        Variant(
            name="one-graph-compiled",
            call="ivhl.mlff.painn:energy_forces_one_graph",
            fullgraph=True,
        ),
        *cuda_variants(
            "one-graph",
            call="ivhl.mlff.painn:energy_forces_one_graph",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Schütt, Unke and Gastegger, PaiNN, arXiv:2102.03150",
)
