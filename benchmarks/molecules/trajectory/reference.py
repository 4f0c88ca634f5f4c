"""The reference of one geometry, for each of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.molecules.energy_forces import reference as energy_forces_reference

if TYPE_CHECKING:
    from collections.abc import Sequence


def reference(
    parameters: dict[str, Any], atomic_numbers: torch.Tensor, frames: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energies in eV and forces in eV/Å, ``[n_frames, n_atoms, 3]``, float64."""
    each = [energy_forces_reference.reference(parameters, atomic_numbers, x) for x in frames]
    return torch.stack([e for e, _ in each]), torch.stack([f for _, f in each])
