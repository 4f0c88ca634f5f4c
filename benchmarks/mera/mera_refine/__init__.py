"""A state one layer down the binary MERA: the reverse of ``ops.mera_coarse_grain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.mera import mera_coarse_grain
from ivhl.workload import Cost, Variant, Workload

if TYPE_CHECKING:
    from benchmarks.mera.mera_coarse_grain import Size

CALLS = "benchmarks.mera.mera_refine.calls"


def cost(size: Size) -> Cost:
    """Count as for ``mera_coarse_grain``: the same multiplications in reverse order."""
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
    variants=(Variant(name="naive-compiled", call="ivhl.ops.mera:refine", dynamic=False),),
    cost=f"{__name__}:cost",
    source="Vidal, Phys. Rev. Lett. 99, 220405 (2007)",
)
