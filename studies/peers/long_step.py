"""The Gross-Pitaevskii workload with a long time step: its naive code and its reference."""

from __future__ import annotations

import torch

from benchmarks.condensate.gp_evolve import LAM, M2, N_STEPS, RANK
from ivhl.ops.condensate.waves import gp_evolve
from studies.peers.suite import LONG_DT


def evolve(phi: torch.Tensor) -> torch.Tensor:
    """Return the condensate four long steps later, shape and dtype of ``phi``."""
    return gp_evolve(phi, dt=LONG_DT, m2=M2, lam=LAM, rank=RANK, n_steps=N_STEPS)


def reference(phi: torch.Tensor) -> torch.Tensor:
    """Return the same by the exponential of the Laplacian's matrix, ``[n, n, n]``, complex128."""
    one = torch.eye(phi.shape[0], dtype=torch.complex128)
    laplacian = one.roll(1, 0) + one.roll(-1, 0) - 2.0 * one
    propagator = torch.linalg.matrix_exp(1j * LONG_DT * laplacian)
    for _ in range(N_STEPS):
        phi = _turn(phi)
        for _axis in range(phi.ndim):
            # tensordot moves the first axis to the end: after three times the order is restored.
            phi = torch.tensordot(phi, propagator, dims=([0], [0]))
        phi = _turn(phi)
    return phi


def _turn(phi: torch.Tensor) -> torch.Tensor:
    angle = 0.5 * LONG_DT * (M2 + LAM * phi.abs().pow(RANK - 2))
    return phi * torch.polar(torch.ones_like(angle), -angle)
