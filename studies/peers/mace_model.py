"""MACE by mace-torch, in the default sizes of its training script, for H, C, N and O."""

from __future__ import annotations

import mace  # noqa: F401  (first: it allows e3nn to load its constants)
import numpy as np
import torch
from e3nn.o3 import Irreps
from mace.modules import ScaleShiftMACE, interaction_classes

from ivhl.measure.imports import SEED
from studies.peers.potentials import Potential, all_pairs, count_weights

ELEMENTS = (1, 6, 7, 8)
INTERACTION = "RealAgnosticResidualInteractionBlock"


def make_mace(numbers: torch.Tensor, dtype: torch.dtype, *, irreps: str) -> Potential:
    """Return the eager model with a given list of neighbours, as its calculator runs it.

    Args:
        numbers: Atomic numbers, shape ``[n_atoms]``.
        dtype: Dtype of the model.
        irreps: Features of a node between interactions, e.g. ``"128x0e + 128x1o"``.
    """
    torch.manual_seed(SEED)
    network = ScaleShiftMACE(
        r_max=5.0,
        num_bessel=8,
        num_polynomial_cutoff=5,
        max_ell=3,
        interaction_cls=interaction_classes[INTERACTION],
        interaction_cls_first=interaction_classes[INTERACTION],
        num_interactions=2,
        num_elements=len(ELEMENTS),
        hidden_irreps=Irreps(irreps),
        MLP_irreps=Irreps("16x0e"),
        atomic_energies=np.zeros(len(ELEMENTS)),
        avg_num_neighbors=8.0,
        atomic_numbers=list(ELEMENTS),
        correlation=3,
        gate=torch.nn.functional.silu,
        atomic_inter_scale=1.0,
        atomic_inter_shift=0.0,
    )
    network = network.to(dtype).eval().requires_grad_(requires_grad=False)
    receivers, senders = all_pairs(len(numbers))
    no_shift = torch.zeros(len(senders), 3, dtype=dtype)
    fixed = {
        "node_attrs": (numbers[:, None] == torch.tensor(ELEMENTS)).to(dtype),
        "edge_index": torch.stack((senders, receivers)),
        "shifts": no_shift,
        "unit_shifts": no_shift,
        "cell": torch.zeros(3, 3, dtype=dtype),
        "batch": torch.zeros_like(numbers),
        "ptr": torch.tensor([0, len(numbers)]),
    }

    def evaluate(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # Without detach() the network would set requires_grad on the caller's tensor.
        found = network({**fixed, "positions": positions.detach()})
        return found["energy"], found["forces"]

    return Potential(evaluate=evaluate, n_weights=count_weights(network))
