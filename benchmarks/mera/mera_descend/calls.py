"""Inputs and reference of the descending superoperator's workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from benchmarks.mera.mera_ascend import LARGE
from benchmarks.mera.mera_ascend.reference import Network, states_of_six
from benchmarks.mera.mera_coarse_grain.calls import draw_maps

if TYPE_CHECKING:
    from benchmarks.mera.mera_ascend import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a density matrix of three sites, a unitary disentangler and an isometry.

    Returns:
        Density matrix with six axes of size ``chi``, rows first, of trace one; disentangler with
        four, isometry with three; all complex128.
    """
    chi = size.chi
    noise = torch.randn(chi**3, chi**3, dtype=torch.complex128, generator=generator)
    density = noise @ noise.mH
    density = density / torch.trace(density)
    return (density.reshape((chi,) * 6), *draw_maps(chi, chi, generator))


def reference(
    density: torch.Tensor, disentangler: torch.Tensor, isometry: torch.Tensor
) -> torch.Tensor:
    """Return the density matrix of three fine sites, six axes, rows first, complex128.

    Mean of the partial traces over all but the sites (1, 2, 3) and all but (2, 3, 4) of the density
    matrix that six fine sites have.
    """
    chi, coarse = isometry.shape[1:]
    if chi >= LARGE:
        return by_network(density, disentangler, isometry)
    states = states_of_six(disentangler, isometry)
    matrix = density.to(torch.complex128).reshape(coarse**3, coarse**3)
    weighted = states @ matrix
    total = torch.zeros(chi**3, chi**3, dtype=torch.complex128, device=density.device)
    for first in (1, 2):
        kept, front = (first, first + 1, first + 2), (0, 1, 2)
        rows = weighted.movedim(kept, front).reshape(chi**3, -1)
        columns = states.movedim(kept, front).reshape(chi**3, -1)
        total += 0.5 * rows @ columns.mH
    return total.reshape((chi,) * 6)


def by_network(
    density: torch.Tensor, disentangler: torch.Tensor, isometry: torch.Tensor
) -> torch.Tensor:
    """Return the same as ``reference``, from all tensors of both cones, for ``chi^9``."""
    net = Network(disentangler, isometry)
    both = torch.einsum("pqrPQR,TPtp->qrQRTt", density.to(torch.complex128), net.first)
    left = torch.einsum("qrQRTt,WRwr->qQTtWw", both, net.last)
    left = torch.einsum("qQTtWw,wdeuq->QTtWdeu", left, net.ket_right)
    left = torch.einsum("QTtWdeu,WDeUQ->TtduDU", left, net.bra_right)
    left = torch.einsum("TtduDU,tubc->TdDUbc", left, net.u_inverse)
    left = torch.einsum("TdDUbc,TUBC->bcdBCD", left, net.u)
    right = torch.einsum("qrQRTt,tbcvq->rQRTbcv", both, net.ket_left)
    right = torch.einsum("rQRTbcv,TbCVQ->rRcvCV", right, net.bra_left)
    right = torch.einsum("rRcvCV,WRwr->cvCVWw", right, net.last)
    right = torch.einsum("cvCVWw,vwde->cCVWde", right, net.u_inverse)
    right = torch.einsum("cCVWde,VWDE->cdeCDE", right, net.u)
    return 0.5 * (left + right)
