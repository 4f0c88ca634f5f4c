"""A density matrix one layer down the binary MERA: contractions of order ``chi^9``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.mera import mera_ascend
from ivhl.workload import Cost, Variant, Workload

if TYPE_CHECKING:
    from benchmarks.mera.mera_ascend import Size

CALLS = "benchmarks.mera.mera_descend.calls"


def cost(size: Size) -> Cost:
    """Count as on the way up, of which every contraction is the transpose of one here.

    The reference holds the map from three sites to six, as that one does.
    """
    return mera_ascend.cost(size)


WORKLOAD = Workload(
    name="ops.mera_descend",
    version=1,
    title="Descending superoperator of the binary MERA, average of both cones",
    sizes=mera_ascend.WORKLOAD.sizes,
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager="ivhl.ops.mera:descend",
    reference=f"{CALLS}:reference",
    outputs=("density",),
    core="naive-compiled",
    variants=(Variant(name="naive-compiled", call="ivhl.ops.mera:descend", dynamic=False),),
    cost=f"{__name__}:cost",
    source="Evenbly and Vidal, Phys. Rev. B 79, 144108 (2009), section IV",
)
