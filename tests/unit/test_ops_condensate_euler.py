"""Waves grow by the law of explicit Euler, and real planes agree with the complex formula."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.ops.condensate.euler import make_condensate_euler_planes
from tests.builders.condensates import (
    LAM,
    M2,
    as_is,
    as_stack,
    cubes,
    euler,
    frequency_of,
    make_noise,
    make_wave,
    naive_euler,
    ranks,
    relative,
    shapes,
)

if TYPE_CHECKING:
    from tests.builders.condensates import Evolve

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

eulers = pytest.mark.parametrize("step", [naive_euler, euler], ids=["naive", "planes"])


@settings(deadline=None)
@given(shape=shapes, rank=ranks, seed=st.integers(0, 99))
def test_planes_of_an_euler_step_are_the_formula(shape: list[int], rank: int, seed: int) -> None:
    phi = make_noise(*shape, seed=seed)
    constants: dict[str, Any] = {"dt": 0.03, "m2": M2, "lam": LAM, "rank": rank}
    expected = naive_euler(phi, **constants)
    torch.testing.assert_close(euler(phi, **constants), expected, rtol=1e-13, atol=1e-13)
    short = euler(phi.to(torch.complex64), **constants)
    torch.testing.assert_close(short, expected.to(torch.complex64), rtol=1e-5, atol=1e-5)


@given(shape=cubes, rank=ranks, n_steps=st.integers(1, 3), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_planes_step_as_the_condensate_does(
    shape: tuple[int, int, int], rank: int, n_steps: int, seed: int
) -> None:
    phi = make_noise(*shape, seed=seed)
    planes, step = as_stack(phi), make_condensate_euler_planes(as_is, rank=rank)
    for _ in range(n_steps):
        planes = step(planes, 0.01, M2, LAM)
        phi = naive_euler(phi, dt=0.01, m2=M2, lam=LAM, rank=rank)
    assert torch.allclose(torch.complex(*planes.unbind()), phi, rtol=1e-12, atol=1e-12)


@eulers
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize(
    ("shape", "k"),
    [((8,), (0,)), ((8,), (3,)), ((6, 8), (3, 1)), ((6, 8, 5), (3, 4, 2)), ((4, 4, 4), (0, 0, 0))],
)
def test_every_wave_grows_by_the_law_of_explicit_euler(
    step: Evolve, shape: tuple[int, ...], k: tuple[int, ...], rank: int
) -> None:
    amplitude, dt = 0.7, 0.02
    phi = make_wave(shape, k, amplitude)
    energy = frequency_of(shape, k, amplitude, rank)
    after = step(phi, dt=dt, m2=M2, lam=LAM, rank=rank)
    growth = after.abs() / amplitude
    assert float((growth - math.sqrt(1.0 + (dt * energy) ** 2)).abs().max()) < 1e-14
    assert relative(after, (1.0 - 1j * dt * energy) * phi) < 1e-14


def test_the_particle_number_grows_by_the_sum_of_all_waves_without_interaction() -> None:
    phi, dt, n_steps = make_noise(4, 6, 5), 0.01, 1000
    after = phi
    for _ in range(n_steps):
        after = euler(after, dt=dt, m2=M2, lam=0.0, rank=3)
    symbol = torch.zeros(phi.shape, dtype=torch.float64)
    for axis, n in enumerate(phi.shape):
        line = 2.0 - 2.0 * torch.cos(2.0 * math.pi / n * torch.arange(n, dtype=torch.float64))
        symbol = symbol + line.reshape([-1 if a == axis else 1 for a in range(3)])
    growth = (1.0 + (dt * (symbol + M2)).square()) ** n_steps
    waves = torch.fft.fftn(phi).abs().square()
    expected = float((growth * waves).sum() / waves.sum())
    assert float(after.norm() / phi.norm()) ** 2 == pytest.approx(expected, rel=1e-11)


def test_euler_makes_the_noise_of_the_original_thousands_of_times_denser() -> None:
    phi = make_noise(16, 16, 16, size=0.1, dtype=torch.complex64)
    after, growth = phi, {}
    for number in range(1, 1001):
        after = euler(after, dt=0.01, m2=M2, lam=LAM, rank=3)
        growth[number] = float(after.norm() / phi.norm()) ** 2
    assert growth[100] == pytest.approx(1.5, rel=0.02)
    assert growth[300] == pytest.approx(4.7, rel=0.02)
    assert growth[1000] == pytest.approx(6550, rel=0.05)
