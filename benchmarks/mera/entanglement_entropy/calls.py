"""Inputs of the entropy's workload, and its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ivhl.ops.entanglement import entanglement_entropy, make_entanglement_entropy

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.mera.entanglement_entropy import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a state of qubits, shape ``[2, 2, ...]``, complex128, not normalised."""
    return (torch.randn((2,) * size.n_qubits, dtype=torch.complex128, generator=generator),)


def entropy(psi: torch.Tensor) -> torch.Tensor:
    """Return the entropy of the first half of the qubits, in bits."""
    return entanglement_entropy(psi, psi.ndim // 2)


def make_entropy(compiler: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``entropy`` without singular vectors and mask, compiled by ``compiler``."""
    compute = make_entanglement_entropy(compiler)

    def entropy_of_half(psi: torch.Tensor) -> torch.Tensor:
        return compute(psi, psi.ndim // 2)

    return entropy_of_half
