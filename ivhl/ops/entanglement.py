"""Entanglement entropy of a pure state over two subsystems."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from ivhl.compile import get_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

# From this ratio of the longer to the shorter side of the matrix, one matrix multiplication and a
# small eigenproblem in float64 are faster and more accurate than singular values in float32.
_UNBALANCED: Final = 4
# The naive form treats weights up to this as zero.
_SMALLEST_WEIGHT: Final = 1e-12


def entanglement_entropy(psi: torch.Tensor, n_left: int, base: float = 2.0) -> torch.Tensor:
    """Return the entanglement entropy, computed literally from the formula.

    ``S = -sum_i p_i log p_i`` with ``p_i = s_i^2 / sum_j s_j^2`` over the singular values ``s``.

    Args:
        psi: State, shape ``[d_1, d_2, ...]``, floating or complex, with a norm above zero.
        n_left: Number of leading axes that make up subsystem A.
        base: Base of the logarithm; 2 gives bits.

    Returns:
        Entropy, a real tensor without axes.

    Raises:
        ValueError: If an argument is wrong.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``compute_entanglement_entropy_svd``.
    """
    _check(psi, n_left, base)
    _, s, _ = torch.linalg.svd(_as_matrix(psi, n_left), full_matrices=False)
    p = s**2 / (s**2).sum()
    p = p[p > _SMALLEST_WEIGHT]
    return -(p * torch.log(p)).sum() / math.log(base)


def compute_entanglement_entropy(
    psi: torch.Tensor, n_left: int, base: float = 2.0
) -> torch.Tensor:
    """Return the von Neumann entropy of a subsystem of a pure state.

    The function normalises the state. Both subsystems have the same entropy, at most
    ``log(min(d_A, d_B))``. Gradients are finite for every state except zero; second derivatives
    need distinct singular values.

    Args:
        psi: State, shape ``[d_1, d_2, ...]``, floating or complex, single or double precision.
        n_left: Number of leading axes that make up subsystem A, from 0 to all.
        base: Base of the logarithm, positive and not 1; 2 gives bits, ``math.e`` nats.

    Returns:
        Entropy, a real tensor without axes, in the precision of ``psi``; NaN if ``psi`` is zero.

    Raises:
        ValueError: If ``psi`` is empty or has another dtype, or ``n_left`` or ``base`` is out of
            range.

    Source:
        Nielsen and Chuang, Quantum Computation and Quantum Information, sections 2.5 and 11.3;
        mean over random states: Page, Phys. Rev. Lett. 71, 1291 (1993).
    """
    _check(psi, n_left, base)
    return _compiled_entropy(schmidt_weights(psi, n_left)).to(psi.real.dtype) / math.log(base)


def make_entanglement_entropy(
    compiler: Callable[..., Callable[..., torch.Tensor]],
) -> Callable[..., torch.Tensor]:
    """Return ``compute_entanglement_entropy`` with its arithmetic compiled.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function with the arguments and the result of ``compute_entanglement_entropy``.
    """
    entropy = compiler(entropy_of_weights)

    def compute(psi: torch.Tensor, n_left: int, base: float = 2.0) -> torch.Tensor:
        _check(psi, n_left, base)
        return entropy(schmidt_weights(psi, n_left)).to(psi.real.dtype) / math.log(base)

    return compute


def schmidt_weights(psi: torch.Tensor, n_left: int) -> torch.Tensor:
    """Return the eigenvalues of the reduced density matrix, not normalised.

    Never compiled, since a decomposition is a library call. For a state in single precision with
    one subsystem much smaller, the density matrix of that subsystem is built and diagonalised in
    float64: squares of singular values are then exact to 1e-16 of the largest. For a state in
    double precision the singular values are computed, whose squares have more digits.

    Args:
        psi: State, shape ``[d_1, d_2, ...]``.
        n_left: Number of leading axes that make up subsystem A.

    Returns:
        Weights, shape ``[min(d_A, d_B)]``, not negative, always float64: the logarithm of a weight
        close to 1 needs the digits, and there are few weights.
    """
    matrix = _as_matrix(psi, n_left)
    short, long = sorted(matrix.shape)
    if matrix.real.dtype == torch.float32 and long >= _UNBALANCED * short:
        wide = matrix.to(torch.complex128 if matrix.is_complex() else torch.float64)
        density = wide @ wide.mH if wide.shape[0] == short else wide.mH @ wide
        return torch.linalg.eigvalsh(density).clamp(min=0.0)
    return torch.linalg.svdvals(matrix).double().square()


def entropy_of_weights(weights: torch.Tensor) -> torch.Tensor:
    """Return ``-sum_i p_i ln p_i`` of the normalised weights, without a mask.

    Args:
        weights: Shape ``[n]``, not negative.

    Returns:
        Entropy in nats, a tensor without axes.
    """
    p = weights / weights.sum()
    # 0 ln 0 and its derivative by a singular value are 0, provided that the logarithm is finite.
    inverse = p.clamp(min=torch.finfo(p.dtype).tiny).reciprocal()
    return torch.special.xlogy(p, inverse).sum()


_compiled_entropy = get_compiled(entropy_of_weights, dynamic=True, fullgraph=True)


def _as_matrix(psi: torch.Tensor, n_left: int) -> torch.Tensor:
    return psi.reshape(math.prod(psi.shape[:n_left]), math.prod(psi.shape[n_left:]))


def _check(psi: torch.Tensor, n_left: int, base: float) -> None:
    if psi.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        raise ValueError(f"psi must be float or complex, single or double, got {psi.dtype}")
    if psi.numel() == 0:
        raise ValueError(f"psi must have at least one element, got shape {list(psi.shape)}")
    if not 0 <= n_left <= psi.ndim:
        raise ValueError(f"n_left must be from 0 to {psi.ndim}, got {n_left}")
    if not (0.0 < base < math.inf and base != 1.0):
        raise ValueError(f"base must be positive, finite and not 1, got {base}")
