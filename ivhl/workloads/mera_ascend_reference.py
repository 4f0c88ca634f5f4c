"""The same operator by the map from three coarse sites to the six fine ones under them."""

from __future__ import annotations

import torch


def reference(
    operator: torch.Tensor, disentangler: torch.Tensor, isometry: torch.Tensor
) -> torch.Tensor:
    """Return the operator on three coarse sites, six axes, rows first, complex128.

    Each coarse basis state is a column of six fine sites: isometries on (0, 1), (2, 3), (4, 5), then
    inverse disentanglers on (1, 2), (3, 4). The operator acts on (1, 2, 3) in one cone and on
    (2, 3, 4) in the other.
    """
    chi, coarse = isometry.shape[1:]
    states = states_of_six(disentangler, isometry)
    matrix = operator.to(torch.complex128).reshape(chi**3, chi**3)
    columns = states.reshape(-1, coarse**3)
    total = sum(
        columns.mH @ _apply(matrix, states, first, 3).reshape(-1, coarse**3) for first in (1, 2)
    )
    return 0.5 * torch.as_tensor(total).reshape((coarse,) * 6)


def states_of_six(disentangler: torch.Tensor, isometry: torch.Tensor) -> torch.Tensor:
    """Return what each state of three coarse sites is on the six fine ones under them.

    Returns:
        Six axes of size ``chi``, and one of size ``chi_coarse^3``; complex128.
    """
    chi, coarse = isometry.shape[1:]
    w = isometry.to(torch.complex128).reshape(chi * chi, coarse)
    states = torch.kron(torch.kron(w, w), w).reshape((chi,) * 6 + (coarse**3,))
    back = disentangler.to(torch.complex128).reshape(chi * chi, chi * chi).mH
    for first in (1, 3):
        states = _apply(back, states, first, 2)
    return states


def _apply(matrix: torch.Tensor, states: torch.Tensor, first: int, n: int) -> torch.Tensor:
    """Apply a matrix to ``n`` neighbouring axes."""
    axes = tuple(range(first, first + n))
    moved = states.movedim(axes, tuple(range(n)))
    after = (matrix @ moved.reshape(matrix.shape[1], -1)).reshape(moved.shape)
    return after.movedim(tuple(range(n)), axes)
