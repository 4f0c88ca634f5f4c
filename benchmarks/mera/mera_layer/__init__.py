"""One layer of maps over pairs of sites: two maps as first written, one map when compiled."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cuda import cuda_variants
from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.mera.mera_layer.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Sites, and rows of the square matrix on each; the bond of the coarse sites is twice that.

    The disentanglers alone take ``16 n_sites d^4`` bytes in complex64: 0.5, 4 and 134 MB, and 4.3 GB
    at the extreme, where drawing in complex128 and casting takes some 13 GB.
    """

    n_sites: int
    d: int


def cost(size: Size) -> Cost:
    """Count one product of a row with the contracted map for every pair of sites, in complex64.

    What must move is the map; for who has both maps only, it is the disentanglers, ``d`` times as
    much. Drawing in complex128, casting and the reference hold about seven times the disentanglers.
    """
    n_pairs, width, coarse = size.n_sites // 2, 2 * size.d**2, 2 * size.d
    return Cost(
        flops=8.0 * n_pairs * width * coarse,
        bytes=8.0 * n_pairs * (width * coarse + width + coarse),
        memory=7.0 * 8.0 * n_pairs * width**2,
    )


WORKLOAD = Workload(
    name="ops.mera_layer",
    version=1,
    title="One layer of disentanglers and isometries on pairs of matrices",
    sizes={
        "small": Size(32, 4),
        "medium": Size(64, 8),
        "large": Size(128, 16),
        "extreme": Size(256, 32),
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:layer",
    reference="benchmarks.mera.mera_layer.reference:reference",
    outputs=("coarse",),
    core="precontracted-compiled",
    fixed=(1, 2),  # a layer is applied to many tensors
    variants=(
        Variant(name="naive-compiled", call=f"{CALLS}:layer", dynamic=False),
        # Both maps are contracted once, outside of the clock: who simulates applies the same layer
        # to many tensors. Without that every formulation is bound by reading the disentanglers.
        # Takes real planes, which a simulation would keep between layers.
        Variant(
            name="precontracted-compiled",
            call="ivhl.ops.mera:mera_map_planes",
            dynamic=False,
            prepare=f"{CALLS}:prepare_pairs",
            finish=f"{CALLS}:as_complex",
            fullgraph=True,
        ),
        Variant(
            name="precontracted-dynamic",
            call=f"{CALLS}:make_apply_map",
            compiles="parts",
            prepare=f"{CALLS}:prepare_map",
            dynamic=True,
            fullgraph=True,
        ),
        *cuda_variants(
            "precontracted",
            call=f"{CALLS}:make_apply_map",
            compiles="parts",
            prepare=f"{CALLS}:prepare_map",
            fullgraph=True,
        ),
    ),
    cost=f"{__name__}:cost",
    source="Zynerji/iVHL, scripts/compiled_ops.py, contract_mera_layer",
)
