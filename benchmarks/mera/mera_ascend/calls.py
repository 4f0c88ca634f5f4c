"""Inputs of the ascending superoperator's workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from benchmarks.mera.mera_ascend import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a hermitian operator on three sites, a unitary disentangler and an isometry.

    Returns:
        Operator with six axes of size ``chi``, rows first, disentangler with four, isometry with
        three; all complex128.
    """
    chi = size.chi

    def noise(n: int) -> torch.Tensor:
        return torch.randn(n, n, dtype=torch.complex128, generator=generator)

    operator = noise(chi**3)
    operator = (operator + operator.mH) / (2.0 * chi)
    disentangler = torch.linalg.qr(noise(chi**2)).Q
    isometry = torch.linalg.qr(noise(chi**2)).Q[:, :chi]
    return (
        operator.reshape((chi,) * 6),
        disentangler.reshape((chi,) * 4),
        isometry.reshape((chi,) * 3),
    )
