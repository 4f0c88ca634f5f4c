"""The potential and the energy are the sums that they should be, point by point and bond by bond."""

from __future__ import annotations

import cmath
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.ops.condensate.potential import condensate_potential, make_condensate_potential_planes
from tests.builders.condensates import (
    LAM,
    M2,
    as_is,
    as_stack,
    cubes,
    energy_of,
    make_noise,
    naive_euler,
    potential_of,
    ranks,
    relative,
    shapes,
)

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")


def loop_potential(phi: torch.Tensor, m2: float, lam: float, rank: int) -> float:
    """Return the potential point by point, in Python's numbers."""
    shape = tuple(phi.shape)
    total = 0.0
    for point in itertools.product(*(range(n) for n in shape)):
        modulus = abs(complex(phi[point]))
        total += 0.5 * m2 * modulus**2 + lam / math.gamma(rank + 1) * modulus**rank
        for axis, n in enumerate(shape):
            if n > 1:
                lower, upper = max(point[axis] - 1, 0), min(point[axis] + 1, n - 1)
                a = complex(phi[(*point[:axis], lower, *point[axis + 1 :])])
                b = complex(phi[(*point[:axis], upper, *point[axis + 1 :])])
                total += abs((b - a) / (upper - lower)) ** 2
    return total


def loop_energy(phi: torch.Tensor, m2: float, lam: float, rank: int) -> float:
    """Return the energy bond by bond, in Python's numbers."""
    shape = tuple(phi.shape)
    total = 0.0
    for point in itertools.product(*(range(n) for n in shape)):
        value = complex(phi[point])
        total += m2 * abs(value) ** 2 + 2.0 * lam / rank * abs(value) ** rank
        for axis, n in enumerate(shape):
            following = (*point[:axis], (point[axis] + 1) % n, *point[axis + 1 :])
            total += abs(complex(phi[following]) - value) ** 2
    return total


@settings(deadline=None)
@given(shape=shapes, rank=ranks, seed=st.integers(0, 99))
def test_potential_is_the_sum_over_points(shape: list[int], rank: int, seed: int) -> None:
    phi = make_noise(*shape, seed=seed)
    expected = loop_potential(phi, M2, LAM, rank)
    actual = potential_of(phi, M2, LAM, rank)
    naive = condensate_potential(phi, mass_sq=M2, lambda_coupling=LAM, rank=rank)
    short = potential_of(phi.to(torch.complex64), M2, LAM, rank)
    assert float(actual) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert float(naive) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert float(short) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert short.dtype == torch.float32
    assert short.shape == ()


@settings(deadline=None)
@given(shape=shapes, rank=ranks, seed=st.integers(0, 99))
def test_energy_is_the_sum_over_bonds(shape: list[int], rank: int, seed: int) -> None:
    phi = make_noise(*shape, seed=seed)
    expected = loop_energy(phi, M2, LAM, rank)
    assert float(energy_of(phi, rank=rank)) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    short = energy_of(phi.to(torch.complex64), rank=rank)
    assert float(short) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@given(shape=cubes, rank=ranks, seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_planes_have_the_potential_of_the_condensate(
    shape: tuple[int, int, int], rank: int, seed: int
) -> None:
    phi = make_noise(*shape, seed=seed)
    potential = make_condensate_potential_planes(as_is, rank=rank)
    naive = condensate_potential(phi, mass_sq=M2, lambda_coupling=LAM, rank=rank)
    assert math.isclose(potential(as_stack(phi), M2, LAM), naive, rel_tol=1e-12, abs_tol=1e-12)
    a_third = potential(as_stack(phi), M2, LAM, scale=1.0 / 3.0)
    assert math.isclose(a_third, naive / 3.0, rel_tol=1e-12, abs_tol=1e-12)


def test_a_linear_field_has_the_same_slope_at_the_ends() -> None:
    x, y, z = (torch.arange(n, dtype=torch.float64) for n in (4, 5, 6))
    plane = 0.3 * x[:, None, None] - 0.2 * y[:, None] + 0.1 * z
    phi = torch.complex(plane, 2.0 * plane)
    assert float(potential_of(phi, 0.0, 0.0, 3)) == pytest.approx(5.0 * 0.14 * 120, rel=1e-14)


@settings(deadline=None)
@given(angle=st.floats(0.0, 6.0, allow_subnormal=False), seed=st.integers(0, 99))
def test_a_common_phase_changes_neither_potential_nor_energy(angle: float, seed: int) -> None:
    phi = make_noise(3, 4, 5, seed=seed)
    turned = cmath.exp(1j * angle) * phi
    assert float(potential_of(turned, M2, LAM, 3)) == pytest.approx(
        float(potential_of(phi, M2, LAM, 3)), rel=1e-13
    )
    assert float(energy_of(turned)) == pytest.approx(float(energy_of(phi)), rel=1e-13)


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_the_energy_generates_the_equation(rank: int) -> None:
    phi = make_noise(3, 4, 5).requires_grad_()
    (slope,) = torch.autograd.grad(energy_of(phi, rank=rank), phi)
    step = naive_euler(phi.detach(), dt=1.0, m2=M2, lam=LAM, rank=rank) - phi.detach()
    assert relative(0.5 * slope, 1j * step) < 1e-13
