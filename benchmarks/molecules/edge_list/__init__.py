"""Energies and forces of several molecules joined by a list of edges: gathers and scattered sums."""

from __future__ import annotations

from dataclasses import dataclass

from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.molecules.edge_list.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Names of molecules of ``energy_forces.calls.MOLECULES``, and how often they all occur."""

    molecules: tuple[str, ...]
    copies: int


N_ATOMS = {"H2O": 3, "CH4": 5, "C6H6": 12}
ALL = ("H2O", "CH4", "C6H6")


def cost(size: Size) -> Cost:
    """Count the matrix multiplications of three layers, once forward and once backward.

    Forces are derivatives by positions; derivatives by weights are not computed.

    As for ``mlff.energy_forces``, with 120 f for each edge; all atoms of a molecule see each other.
    589,185 weights are read once.
    """
    f = 128
    n_atoms = size.copies * sum(N_ATOMS[name] for name in size.molecules)
    n_edges = size.copies * sum(N_ATOMS[name] * (N_ATOMS[name] - 1) for name in size.molecules)
    forward = 3.0 * (30.0 * n_atoms * f**2 + 120.0 * n_edges * f)
    return Cost(
        flops=2.0 * forward,
        bytes=4.0 * 589_185,
        memory=100.0 * 4.0 * 589_185 + 500.0 * 8.0 * f * n_edges,
    )


WORKLOAD = Workload(
    name="mlff.edge_list",
    version=1,
    title="Energies and forces of joined molecules by PaiNN over a list of edges",
    sizes={"small": Size(("H2O",), 1), "medium": Size(ALL, 1), "large": Size(ALL, 8)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:energies_forces",
    reference=f"{CALLS}:reference",
    outputs=("energies", "forces"),
    core="",  # mlff.energy_forces stands for it: it compiles the same model
    variants=(
        Variant(
            name="naive-compiled",
            call=f"{CALLS}:make_energies_forces",
            compiles="parts",
            dynamic=False,
        ),
        Variant(
            name="one-graph-compiled",
            call=f"{CALLS}:energies_forces_one_graph",
            dynamic=False,
            fullgraph=True,
        ),
    ),
    fixed=(0,),  # weights
    cost=f"{__name__}:cost",
    source="Schütt, Unke and Gastegger, PaiNN, arXiv:2102.03150",
)
