"""Monte Carlo moves of causal triangulations: integer gathers and scatters at random positions."""

from __future__ import annotations

from dataclasses import dataclass

from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.triangulation.cdt_sweep.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Independent lattices, their slices, vertices per slice at the start, moves in each."""

    n_lattices: int
    n_slices: int
    slice_size: int
    n_moves: int

    @property
    def capacity(self) -> int:
        """Vertices that a lattice has room for: twice as many as it starts with."""
        return 2 * self.n_slices * self.slice_size


def cost(size: Size) -> Cost:
    """Count the bytes: lattices and words of int32 are read once; no arithmetic in floats.

    What is returned are the vertices per slice and three counts, float64. Some ten copies of the
    lattices are held, and as lists, for the reference, one lattice at a time.
    """
    lattices = 4.0 * 12 * size.capacity * size.n_lattices
    words = 4.0 * 3 * size.n_moves * size.n_lattices
    counted = 8.0 * (size.n_slices + 3) * size.n_lattices
    return Cost(
        flops=0.0,
        bytes=lattices + words + counted,
        memory=10.0 * (lattices + words + counted),
    )


WORKLOAD = Workload(
    name="ops.cdt_sweep",
    version=1,
    title="Metropolis moves of 1+1-dimensional causal triangulations, many lattices at once",
    sizes={
        "small": Size(16, 4, 4, 32),
        "medium": Size(256, 8, 8, 64),
        "large": Size(512, 16, 16, 64),
        "extreme": Size(2048, 32, 16, 64),  # 101 MB of lattices
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:masked",
    reference="benchmarks.triangulation.cdt_sweep.reference:reference",
    outputs=("volume_profile", "candidates"),
    core="gathered-compiled",
    variants=(
        # One graph of all moves would take minutes to compile, so a single move is compiled.
        Variant(
            name="naive-compiled", call=f"{CALLS}:make_masked", compiles="parts", dynamic=False
        ),
        Variant(
            name="gathered-compiled",
            call=f"{CALLS}:make_gathered",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        # Nothing to autotune without matrix multiplications, and no CUDA graph with a mutated input.
    ),
    cost=f"{__name__}:cost",
    source="Brunekreef, Gorlich and Loll, arXiv:2310.16744, section 2",
)
