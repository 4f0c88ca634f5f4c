"""A state one layer down the binary MERA: the way back of ``ops.mera_coarse_grain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.workload import Cost, Variant, Workload
from ivhl.workloads import mera_coarse_grain

if TYPE_CHECKING:
    from ivhl.workloads.mera_coarse_grain import Size

CALLS = "ivhl.workloads.mera_refine_calls"


def cost(size: Size) -> Cost:
    """Count as on the way up: the same products in the opposite order."""
    return mera_coarse_grain.cost(size)


WORKLOAD = Workload(
    name="ops.mera_refine",
    version=1,
    title="State on the fine chain of the binary MERA: isometries, then disentanglers",
    sizes=mera_coarse_grain.WORKLOAD.sizes,
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager="ivhl.ops.mera:refine",
    reference=f"{CALLS}:reference",
    outputs=("psi",),
    core="naive-compiled",
    variants=(Variant(name="naive-compiled", call="ivhl.ops.mera:refine"),),
    cost=f"{__name__}:cost",
    source="Vidal, Phys. Rev. Lett. 99, 220405 (2007)",
)
