"""Energy and forces of small molecules: many small matrix multiplications and their derivative."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.molecules.energy_forces.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Name of a molecule in ``calls.MOLECULES`` of ``energy_forces``."""

    molecule: str


EAGER = "benchmarks.molecules.energy_forces.literal:energy_forces"
N_ATOMS = {"H2": 2, "H2O": 3, "CH4": 5, "C6H6": 12}
SIZES = {"tiny": Size("H2"), "small": Size("H2O"), "medium": Size("CH4"), "large": Size("C6H6")}


def cost(size: Size) -> Cost:
    """Count the matrix multiplications of three layers, once forward and once backward.

    Forces are derivatives by positions; derivatives by weights are not computed.

    Per layer and atom: 8 f^2 for the message, 12 f^2 to mix vectors, 10 f^2 for the update, and for
    each pair of atoms 120 f for the filter, with f = 128 features. 589,185 weights are read once.
    """
    f, n_atoms = 128, N_ATOMS[size.molecule]
    forward = 3.0 * (30.0 * n_atoms * f**2 + 120.0 * n_atoms**2 * f)
    return Cost(flops=2.0 * forward, bytes=4.0 * 589_185, memory=100.0 * 4.0 * 589_185)


def configurations(calls: str, *, eager: str) -> tuple[Variant, ...]:
    """Return all variants of the model, at a fixed geometry or along a trajectory.

    Args:
        calls: Module with ``make_naive``, ``make_one_graph``, ``make_packed``, ``make_bound``,
            ``make_packed_bound`` and ``make_recorded``, each from a compiler to a function with the
            workload's inputs.
        eager: The workload's own function, for its precisions.
    """
    packed_graph = partial(
        Variant,
        call=f"{calls}:make_packed_bound",
        compiles="parts",
        engine="cuda-graph",
        dynamic=False,
        fullgraph=True,
        devices=("cuda",),
        prepare=f"{CALLS}:pack",
    )
    naive, one_graph = f"{calls}:make_naive", f"{calls}:make_one_graph"
    bound, recorded = f"{calls}:make_bound", f"{calls}:make_recorded"
    return (
        Variant(name="naive-compiled", call=naive, compiles="parts", dynamic=False),
        Variant(
            name="one-graph-compiled",
            call=one_graph,
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="packed-compiled",
            call=f"{calls}:make_packed",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
            prepare=f"{CALLS}:pack",
        ),
        *cuda_variants("one-graph", call=one_graph, compiles="parts", fullgraph=True),
        Variant(
            name="one-graph-cuda-graph",
            call=bound,
            compiles="parts",
            engine="cuda-graph",
            dynamic=False,
            fullgraph=True,
            devices=("cuda",),
        ),
        packed_graph(name="packed-cuda-graph"),
        packed_graph(name="packed-fp16-cuda-graph", dtype="float16"),
        Variant(name="fp16-eager", call=eager, engine="eager", dtype="float16"),
        Variant(name="bf16-eager", call=eager, engine="eager", dtype="bfloat16"),
        Variant(
            name="one-graph-fp16-compiled",
            call=one_graph,
            compiles="parts",
            dtype="float16",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(name="torchscript", call=recorded, compiles="parts", engine="torchscript"),
        Variant(
            name="torchscript-fp16",
            call=recorded,
            compiles="parts",
            engine="torchscript",
            dtype="float16",
        ),
        Variant(name="aotinductor", call=recorded, compiles="parts", engine="aotinductor"),
    )


WORKLOAD = Workload(
    name="mlff.energy_forces",
    version=1,
    title="Energy and forces of one molecule by PaiNN with random weights",
    sizes=SIZES,
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=EAGER,
    reference="benchmarks.molecules.energy_forces.reference:reference",
    outputs=("energy", "forces"),
    core="packed-compiled",
    variants=configurations(CALLS, eager=EAGER),
    fixed=(0,),  # weights
    cost=f"{__name__}:cost",
    source="Schütt, Unke and Gastegger, PaiNN, arXiv:2102.03150",
)
