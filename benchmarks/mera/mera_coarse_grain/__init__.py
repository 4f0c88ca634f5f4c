"""A state one layer up the binary MERA: many thin matrix multiplications, and permuted axes."""

from __future__ import annotations

from dataclasses import dataclass

from ivhl.workload import Cost, Variant, Workload

CALLS = "benchmarks.mera.mera_coarse_grain.calls"


@dataclass(frozen=True, slots=True)
class Size:
    """Dimension of fine and of coarse sites, and the number of fine sites."""

    chi: int
    chi_coarse: int
    n_sites: int


def cost(size: Size) -> Cost:
    """Count the complex multiplications of every disentangler and isometry, 8 operations each.

    A disentangler takes ``chi^2`` products for each number of the state. Isometries go one after
    the other, and the state shrinks by ``chi_coarse / chi^2`` each time. The state is read and the
    coarse one written in complex64.
    """
    n_blocks, pair = size.n_sites // 2, size.chi**2
    fine, coarse = float(pair) ** n_blocks, float(size.chi_coarse) ** n_blocks
    products = n_blocks * fine * pair
    for done in range(n_blocks):
        products += float(size.chi_coarse) ** (done + 1) * float(pair) ** (n_blocks - done)
    return Cost(
        flops=8.0 * products,
        bytes=8.0 * (fine + coarse + pair**2 + pair * size.chi_coarse),
        memory=200.0 * fine,
    )


WORKLOAD = Workload(
    name="ops.mera_coarse_grain",
    version=1,
    title="State on the coarse chain of the binary MERA: disentanglers, then isometries",
    sizes={
        "small": Size(2, 2, 8),
        "medium": Size(2, 2, 12),
        "large": Size(4, 4, 8),
        "extreme": Size(4, 4, 12),
    },
    default_size="medium",
    make_inputs=f"{CALLS}:make_inputs",
    eager="ivhl.ops.mera:coarse_grain",
    reference=f"{CALLS}:reference",
    outputs=("psi",),
    core="naive-compiled",
    variants=(Variant(name="naive-compiled", call="ivhl.ops.mera:coarse_grain", dynamic=False),),
    cost=f"{__name__}:cost",
    source="Vidal, Phys. Rev. Lett. 99, 220405 (2007)",
)
