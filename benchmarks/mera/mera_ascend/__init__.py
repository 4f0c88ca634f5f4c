"""A local operator one layer up the binary MERA: contractions of order ``chi^9``."""

from __future__ import annotations

from dataclasses import dataclass

from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.mera.mera_ascend.calls"
# From here on the reference does not hold the map from three sites to six, of ``chi^9`` elements.
LARGE = 6


@dataclass(frozen=True, slots=True)
class Size:
    """Dimension of every site, fine and coarse."""

    chi: int


def cost(size: Size) -> Cost:
    """Count the products of order ``chi^9`` and ``chi^8`` of both cones, 8 operations each.

    Two of order 9 and four of order 8 in each cone. Operator, disentangler and isometry are read in
    complex64, and an operator is written. The reference holds the map from three sites to six, or at
    the larger sizes what is contracted in its place.
    """
    chi = size.chi
    return Cost(
        flops=2.0 * 8.0 * (2.0 * chi**9 + 4.0 * chi**8),
        bytes=8.0 * (2.0 * chi**6 + chi**4 + chi**3),
        memory=5.0 * 16.0 * float(chi) ** (9 if chi < LARGE else 7),
    )


WORKLOAD = Workload(
    name="ops.mera_ascend",
    version=1,
    title="Ascending superoperator of the binary MERA, average of both cones",
    sizes={"small": Size(3), "medium": Size(4), "large": Size(6), "extreme": Size(8)},
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager="ivhl.ops.mera:ascend",
    reference="benchmarks.mera.mera_ascend.reference:reference",
    outputs=("operator",),
    core="naive-compiled",
    variants=(Variant(name="naive-compiled", call="ivhl.ops.mera:ascend", dynamic=False),),
    cost=f"{__name__}:cost",
    source="Evenbly and Vidal, Phys. Rev. B 79, 144108 (2009), section IV",
)
