"""Our public functions as peers, called as a user calls them (``Peer.make``)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.condensate.gp_evolve import LAM, M2, N_STEPS, RANK
from ivhl import ops
from studies.peers.networks import grid_equation

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


def make_field(*inputs: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return ``compute_field_superposition`` with the inputs of the field workload."""
    return lambda: ops.compute_field_superposition(*inputs)


def make_vortices(*inputs: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return ``compute_vortex_field`` with the inputs of the vortex workload."""
    return lambda: ops.compute_vortex_field(*inputs)


def make_network(*tensors: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return ``contract_tensor_network`` for the grid; it searches the path at the first call."""
    equation = grid_equation(math.isqrt(len(tensors)))
    return lambda: ops.contract_tensor_network(equation, *tensors)


def make_condensate(phi: torch.Tensor, *, dt: float) -> Callable[[], torch.Tensor]:
    """Return ``evolve_condensate_gp`` with the constants of the Gross-Pitaevskii workload."""
    return lambda: ops.evolve_condensate_gp(phi, dt, M2, LAM, RANK, N_STEPS)


def make_gru_step(*inputs: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return ``rnn_step_gru`` with input, state, weights and biases."""
    return lambda: ops.rnn_step_gru(*inputs)


def make_gru(*inputs: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return ``rnn_gru`` with a sequence, state, weights and biases."""
    return lambda: ops.rnn_gru(*inputs)


def make_sweep(
    lattices: torch.Tensor, words: torch.Tensor, slices: torch.Tensor
) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
    """Return ``cdt_sweep`` followed by the workload's observables."""
    n_slices = slices.shape[0]

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        after = ops.cdt_sweep(lattices, words)
        return ops.cdt_volume_profile(after, n_slices=n_slices), ops.cdt_candidates(after)

    return call
