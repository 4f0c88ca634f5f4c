"""Inputs and reference of a state that goes down one layer of the binary MERA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from benchmarks.mera.mera_coarse_grain.calls import draw_maps

if TYPE_CHECKING:
    from benchmarks.mera.mera_coarse_grain import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a coarse state of norm one, a unitary disentangler and an isometry.

    Returns:
        State with ``n_sites / 2`` axes of size ``chi_coarse``, disentangler with four of size
        ``chi``, isometry with axes ``chi``, ``chi`` and ``chi_coarse``; all complex128.
    """
    shape = (size.chi_coarse,) * (size.n_sites // 2)
    psi = torch.randn(shape, dtype=torch.complex128, generator=generator)
    return (
        psi / torch.linalg.vector_norm(psi),
        *draw_maps(size.chi, size.chi_coarse, generator),
    )


def reference(
    psi: torch.Tensor, disentangler: torch.Tensor, isometry: torch.Tensor
) -> torch.Tensor:
    """Return the fine state: site by site by ``tensordot``, the axes found by their numbers."""
    psi, w = psi.to(torch.complex128), isometry.to(torch.complex128)
    u = disentangler.to(torch.complex128).conj()
    n_sites = 2 * psi.ndim
    for block in range(psi.ndim):
        pair = 2 * block, 2 * block + 1
        psi = torch.tensordot(w, psi, dims=([2], [2 * block])).movedim((0, 1), pair)
    for first in range(1, n_sites, 2):
        pair = first, (first + 1) % n_sites
        psi = torch.tensordot(u, psi, dims=([0, 1], list(pair))).movedim((0, 1), pair)
    return psi
