"""The equivariant transformer and TensorNet by TorchMD-NET, in the sizes of its MD17 examples.

Both have a cutoff of 5 Å here. They find neighbours and compute gradients themselves.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torchmdnet.models.model import create_model

from ivhl.measure.imports import SEED
from studies.peers.potentials import Potential, count_weights

COMMON: Final = {
    "activation": "silu",
    "aggr": "add",
    "atom_filter": -1,
    "cutoff_lower": 0.0,
    "cutoff_upper": 5.0,
    "derivative": True,
    "embedding_dimension": 128,
    "max_num_neighbors": 32,
    "max_z": 100,
    "num_rbf": 32,
    "output_model": "Scalar",
    "prior_model": None,
    "rbf_type": "expnorm",
    "reduce_op": "add",
    "trainable_rbf": False,
}
MODELS: Final[dict[str, dict[str, Any]]] = {
    "equivariant-transformer": {
        "attn_activation": "silu",
        "distance_influence": "both",
        "neighbor_embedding": True,
        "num_heads": 8,
        "num_layers": 6,
    },
    "tensornet": {"equivariance_invariance_group": "O(3)", "num_layers": 2},
}
SOURCE: Final = "examples/ET-MD17.yaml and TensorNet-rMD17.yaml of torchmd/torchmd-net"


def make_model(numbers: torch.Tensor, dtype: torch.dtype, *, model: str) -> Potential:
    """Return an eager model.

    Args:
        numbers: Atomic numbers, shape ``[n_atoms]``.
        dtype: Dtype of the model.
        model: Name in ``MODELS``.
    """
    network = _create(model, precision=32)
    if dtype == torch.float64:
        double = _create(model, precision=64)
        double.load_state_dict(network.state_dict())
        network = double
    network = network.eval().requires_grad_(requires_grad=False)

    def evaluate(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # Without detach() the network would set requires_grad on the caller's tensor.
        energy, forces = network(numbers, positions.detach())
        return energy, forces

    return Potential(evaluate=evaluate, n_weights=count_weights(network))


def _create(model: str, *, precision: int) -> Any:  # noqa: ANN401  (its class)
    torch.manual_seed(SEED)
    return create_model({**COMMON, **MODELS[model], "model": model, "precision": precision})
