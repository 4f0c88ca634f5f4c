"""The architecture of ANI-2x by TorchANI, with initial instead of trained weights.

The constructor ``torchani.models.ANI2x`` downloads trained weights, so the model is assembled here
from the same parts. Energies are in hartree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torchani.arch import Assembler
from torchani.utils import SYMBOLS_2X

from ivhl.measure.imports import SEED
from studies.peers.potentials import Potential, count_weights, differentiated

if TYPE_CHECKING:
    from collections.abc import Callable


def make_ani(
    numbers: torch.Tensor, dtype: torch.dtype, *, n_members: int = 1, compiled: bool = False
) -> Potential:
    """Return the model; several members are fused per element, as TorchANI advises for inference."""
    torch.manual_seed(SEED)
    assembler = Assembler(periodic_table_index=True)
    assembler.set_symbols(SYMBOLS_2X)
    assembler.set_atomic_networks(ctor="ani2x")
    assembler.set_global_cutoff_fn("cosine")
    assembler.set_aev_computer(radial="ani2x", angular="ani2x", strategy="pyaev")
    assembler.set_neighborlist("all_pairs")
    assembler.set_zeros_as_self_energies()
    network = assembler.assemble(n_members).to(dtype).requires_grad_(requires_grad=False)
    n_weights = count_weights(network)
    if n_members > 1:
        network = network.to_infer_model()
    species = numbers[None]

    def energy(positions: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = network((species, positions[None])).energies
        return found

    energy_of: Callable[[torch.Tensor], torch.Tensor] = energy
    if compiled:
        energy_of = torch.compile(energy, dynamic=False)
    return Potential(evaluate=differentiated(energy_of), n_weights=n_weights)
