"""PaiNN by SchNetPack, in the sizes of ours, with its own initial weights.

It differs from ours only in its number of elements and in the order in which its filters apply the
cutoff. The weights need no gradient, because nothing is trained.
"""

from __future__ import annotations

from typing import Any

import torch
from ase import Atoms
from schnetpack import properties
from schnetpack.atomistic import Atomwise, Forces, PairwiseDistances
from schnetpack.interfaces import SpkCalculator
from schnetpack.model import NeuralNetworkPotential
from schnetpack.nn import BesselRBF, CosineCutoff
from schnetpack.representation import PaiNN
from schnetpack.transform import VesinNeighborList

from ivhl.measure.imports import SEED
from ivhl.mlff.painn import CUTOFF, N_FEATURES, N_INTERACTIONS, N_RADIAL
from studies.peers.our_potentials import through_ase
from studies.peers.potentials import Potential, all_pairs, count_weights, differentiated


def make_painn(numbers: torch.Tensor, dtype: torch.dtype, *, compiled: bool = False) -> Potential:
    """Return the model with a given list of neighbours, eager or with its energy compiled."""
    network = _make_network(dtype, forces=not compiled)
    receivers, senders = all_pairs(len(numbers))
    fixed = {
        properties.Z: numbers,
        properties.idx_i: receivers,
        properties.idx_j: senders,
        properties.offsets: torch.zeros(len(receivers), 3, dtype=dtype),
        properties.idx_m: torch.zeros_like(numbers),
        properties.n_atoms: torch.tensor([len(numbers)]),
    }

    def energy(positions: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = network({**fixed, properties.R: positions})[properties.energy]
        return found

    def evaluate(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # Without detach() the network would set requires_grad on the caller's tensor.
        found = network({**fixed, properties.R: positions.detach()})
        return found[properties.energy], found[properties.forces]

    return Potential(
        evaluate=differentiated(torch.compile(energy, dynamic=False)) if compiled else evaluate,
        n_weights=count_weights(network),
    )


def make_calculator(numbers: torch.Tensor, dtype: torch.dtype) -> Potential:
    """Return its calculator, which gets new positions at each call, with vesin's neighbour list."""
    network = _make_network(dtype, forces=True)
    atoms = Atoms(numbers=numbers.tolist(), positions=torch.zeros(len(numbers), 3).numpy())
    atoms.calc = SpkCalculator(
        network,
        neighbor_list=VesinNeighborList(cutoff=CUTOFF),
        energy_unit="eV",
        dtype=dtype,
    )
    return Potential(evaluate=through_ase(atoms), n_weights=count_weights(network))


def _make_network(dtype: torch.dtype, *, forces: bool) -> Any:  # noqa: ANN401  (its class)
    torch.manual_seed(SEED)
    network = NeuralNetworkPotential(
        representation=PaiNN(
            n_atom_basis=N_FEATURES,
            n_interactions=N_INTERACTIONS,
            radial_basis=BesselRBF(n_rbf=N_RADIAL, cutoff=CUTOFF),
            cutoff_fn=CosineCutoff(CUTOFF),
        ),
        input_modules=[PairwiseDistances()],
        output_modules=[
            Atomwise(n_in=N_FEATURES, output_key=properties.energy),
            *([Forces()] if forces else []),
        ],
    )
    return network.to(dtype).eval().requires_grad_(requires_grad=False)
