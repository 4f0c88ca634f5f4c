"""A square grid of tensors: row by row as first written, along the best path when compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.mera.tensor_network.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Tensors per side of the grid, and the dimension of every bond."""

    n: int
    bond: int


# Complex products on the path of fewest, by tensors per side with bonds of 8: half of the
# ``opt_cost`` of opt_einsum's ``optimize="dp"``. They are here since declarations import nothing.
PRODUCTS: Final = {3: 344_576.0, 4: 1_720_832.0, 5: 60_965_376.0, 6: 414_335_488.0}


def cost(size: Size) -> Cost:
    """Count 8 operations for each complex product of the best path, and its sum.

    The tensors are read and a vector is written in complex64. Contracted in order, a row of open
    bonds and one more are held, in float64 for the reference.
    """
    rows = range(size.n)
    neighbours = [
        (row > 0) + (row < size.n - 1) + (column > 0) + (column < size.n - 1)
        for row in rows
        for column in rows
    ]
    neighbours[-1] += 1  # the open one
    n_values = float(sum(size.bond**axes for axes in neighbours))
    return Cost(
        flops=8.0 * PRODUCTS[size.n],
        bytes=8.0 * (n_values + size.bond),
        memory=100.0 * (n_values + float(size.bond) ** (size.n + 1)),
    )


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
    reference="benchmarks.mera.tensor_network.reference:reference",
    outputs=("vector",),
    core="path-compiled",
    # The path is found before the clock starts, as by any user who contracts the network twice.
    variants=(
        Variant(
            name="naive-compiled",
            call=f"{CALLS}:make_contract_in_order",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="path-compiled",
            call=f"{CALLS}:make_contract_on_path",
            compiles="parts",
            dynamic=False,
            fullgraph=True,
        ),
        Variant(
            name="path-reduce-overhead",
            call=f"{CALLS}:make_contract_on_path",
            compiles="parts",
            mode="reduce-overhead",
            dynamic=False,
            fullgraph=True,
            devices=("cuda",),
        ),
    ),
    cost=f"{__name__}:cost",
    source="Smith and Gray, J. Open Source Softw. 3, 753 (2018)",
)
