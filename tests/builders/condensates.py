"""Condensates, and the operations on them left eager, for the tests of ``ivhl.ops.condensate``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import strategies as st

from ivhl.ops.condensate.energy import make_condensate_energy
from ivhl.ops.condensate.euler import condensate_euler, make_condensate_euler
from ivhl.ops.condensate.hops import make_condensate_hops
from ivhl.ops.condensate.potential import make_condensate_potential
from ivhl.ops.condensate.waves import make_condensate_strang

if TYPE_CHECKING:
    from collections.abc import Callable

    Evolve = Callable[..., torch.Tensor]

M2, LAM = -0.5, 0.1

ranks = st.integers(2, 6)
shapes = st.lists(st.integers(0, 5), min_size=1, max_size=3)
# Of planes, which have three axes.
cubes = st.tuples(*(st.integers(1, 5) for _ in range(3)))
dtypes = pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)


def as_is(function: Any) -> Any:  # noqa: ANN401  (any function)
    return function


def potential_of(phi: torch.Tensor, m2: float, lam: float, rank: int) -> torch.Tensor:
    return make_condensate_potential(as_is, rank=rank)(phi, m2, lam)


def energy_of(phi: torch.Tensor, m2: float = M2, lam: float = LAM, rank: int = 4) -> torch.Tensor:
    return make_condensate_energy(as_is, rank=rank)(phi, m2, lam)


def euler(phi: torch.Tensor, *, dt: float, m2: float, lam: float, rank: int) -> torch.Tensor:
    return make_condensate_euler(as_is, rank=rank)(phi, dt, m2, lam)


def naive_euler(phi: torch.Tensor, *, dt: float, m2: float, lam: float, rank: int) -> torch.Tensor:
    return condensate_euler(phi, dt=dt, mass_sq=m2, lambda_coupling=lam, rank=rank)


def by_fourier(
    phi: torch.Tensor,
    *,
    dt: float,
    m2: float = M2,
    lam: float = LAM,
    rank: int = 4,
    n_steps: int = 1,
) -> torch.Tensor:
    return make_condensate_strang(as_is, rank=rank)(phi, dt, m2, lam, n_steps)


def by_stencil(
    phi: torch.Tensor,
    *,
    dt: float,
    m2: float = M2,
    lam: float = LAM,
    rank: int = 4,
    n_steps: int = 1,
) -> torch.Tensor:
    # Sixteen amplitudes are exact for every dt of these tests, also in float64.
    evolve = make_condensate_hops(as_is, rank=rank, n_amplitudes=16)
    return evolve(phi, dt, m2, lam, n_steps)


def make_noise(
    *shape: int, size: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.complex128
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (size * torch.randn(shape, dtype=torch.complex128, generator=generator)).to(dtype)


def make_wave(shape: tuple[int, ...], k: tuple[int, ...], amplitude: float) -> torch.Tensor:
    phase = torch.zeros(shape, dtype=torch.float64)
    for axis, (n, q) in enumerate(zip(shape, k, strict=True)):
        x = 2.0 * math.pi * q / n * torch.arange(n, dtype=torch.float64)
        phase = phase + x.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return torch.polar(torch.full_like(phase, amplitude), phase)


def frequency_of(shape: tuple[int, ...], k: tuple[int, ...], amplitude: float, rank: int) -> float:
    symbol = sum(
        2.0 - 2.0 * math.cos(2.0 * math.pi * q / n) for n, q in zip(shape, k, strict=True)
    )
    return symbol + M2 + LAM * amplitude ** (rank - 2)


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).abs().max() / expected.abs().max())


def as_stack(phi: torch.Tensor) -> torch.Tensor:
    return torch.stack((phi.real, phi.imag))
