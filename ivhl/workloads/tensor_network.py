"""A square grid of tensors: row by row as first written, along the best path when compiled."""

from __future__ import annotations

from dataclasses import dataclass

from ivhl.workload import Variant, Workload

CALLS = "ivhl.workloads.tensor_network_calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Tensors per side of the grid, and the dimension of every bond."""

    n: int
    bond: int


WORKLOAD = Workload(
    name="ops.tensor_network",
    version=1,
    title="Contraction of a square grid of tensors but for one index",
    sizes={
        "small": Size(3, 8),
        "medium": Size(4, 8),
        "large": Size(5, 8),
        "extreme": Size(6, 8),
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager=f"{CALLS}:contract_in_order",
    reference="ivhl.workloads.tensor_network_reference:reference",
    outputs=("vector",),
    # The path is found before the clock starts, as by any user who contracts the network twice.
    variants=(
        Variant(
            name="naive-compiled",
            call=f"{CALLS}:make_contract_in_order",
            compiles="parts",
            fullgraph=True,
        ),
        Variant(
            name="path-compiled",
            call=f"{CALLS}:make_contract_on_path",
            compiles="parts",
            fullgraph=True,
        ),
        Variant(
            name="path-reduce-overhead",
            call=f"{CALLS}:make_contract_on_path",
            compiles="parts",
            mode="reduce-overhead",
            fullgraph=True,
            devices=("cuda",),
        ),
    ),
    source="Smith and Gray, J. Open Source Softw. 3, 753 (2018)",
)
