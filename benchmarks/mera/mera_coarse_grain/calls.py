"""Inputs and reference of a state that goes up one layer of the binary MERA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from benchmarks.mera.mera_coarse_grain import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a state of norm one, a unitary disentangler and an isometry.

    Returns:
        State with ``n_sites`` axes of size ``chi``, disentangler with four, isometry with axes
        ``chi``, ``chi`` and ``chi_coarse``; all complex128.
    """
    chi = size.chi
    psi = torch.randn((chi,) * size.n_sites, dtype=torch.complex128, generator=generator)
    return (psi / torch.linalg.vector_norm(psi), *draw_maps(chi, size.chi_coarse, generator))


def draw_maps(
    chi: int, chi_coarse: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a unitary disentangler ``[chi] * 4`` and an isometry ``[chi, chi, chi_coarse]``."""

    def unitary() -> torch.Tensor:
        noise = torch.randn(chi**2, chi**2, dtype=torch.complex128, generator=generator)
        return torch.linalg.qr(noise).Q

    return unitary().reshape((chi,) * 4), unitary()[:, :chi_coarse].reshape(chi, chi, chi_coarse)


def reference(
    psi: torch.Tensor, disentangler: torch.Tensor, isometry: torch.Tensor
) -> torch.Tensor:
    """Return the coarse state: site by site by ``tensordot``, the axes found by their numbers."""
    psi, w = psi.to(torch.complex128), isometry.to(torch.complex128).conj()
    u = disentangler.to(torch.complex128)
    n_sites = psi.ndim
    for first in range(1, n_sites, 2):
        pair = first, (first + 1) % n_sites
        psi = torch.tensordot(u, psi, dims=([2, 3], list(pair))).movedim((0, 1), pair)
    for block in range(n_sites // 2):
        psi = torch.tensordot(w, psi, dims=([0, 1], [block, block + 1])).movedim(0, block)
    return psi
