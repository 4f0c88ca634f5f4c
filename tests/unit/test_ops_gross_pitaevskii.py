"""Evolution conserves energy and norm, and the stencil agrees with the Fourier transform."""

from __future__ import annotations

import cmath
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.ops.condensate.hops import hop_amplitudes, make_condensate_hops
from ivhl.ops.condensate.waves import gp_evolve, laplacian_symbol

if TYPE_CHECKING:
    from collections.abc import Callable

    Evolve = Callable[..., torch.Tensor]

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

# Below, no subnormal floats: code compiled by torch 2.5 switches them off for the whole process
# (-ffast-math), and Hypothesis then refuses to draw them.

M2, LAM = -0.5, 0.1


def stencil_evolve(
    phi: torch.Tensor, *, dt: float, m2: float, lam: float, rank: int = 4, n_steps: int = 1
) -> torch.Tensor:
    reach = len(hop_amplitudes(dt, precision=torch.finfo(phi.dtype).eps / 16.0))
    evolve = make_condensate_hops(lambda f: f, rank=rank, n_amplitudes=reach)
    return evolve(phi, dt, m2, lam, n_steps)


forms = pytest.mark.parametrize("evolve", [gp_evolve, stencil_evolve], ids=["naive", "stencil"])


def make_noise(n: int, *, size: float = 1.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return size * torch.randn(n, n, n, dtype=torch.complex128, generator=generator)


def make_smooth(n: int) -> torch.Tensor:
    """Return a few long waves, of size 1."""
    x = 2.0 * math.pi / n * torch.arange(n, dtype=torch.float64)
    wave = (x.cos()[:, None, None] + 0.5 * x.sin()[None, :, None]) + 0.3 * (2.0 * x).cos()
    return torch.complex(wave, 0.4 * wave.roll(1, 0) + 0.2)


def energy_of(phi: torch.Tensor) -> float:
    """Return the energy whose equation of motion this is, for rank 4: forward differences."""
    kinetic = sum(float((phi.roll(-1, axis) - phi).abs().square().sum()) for axis in range(3))
    density = phi.abs().square()
    return kinetic + float((M2 * density + 0.5 * LAM * density.square()).sum())


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).abs().max() / expected.abs().max())


@forms
@settings(deadline=None)
@given(seed=st.integers(0, 1000), rank=st.integers(2, 6))
def test_norm_is_conserved(evolve: Evolve, seed: int, rank: int) -> None:
    phi = make_noise(6, seed=seed)
    after = evolve(phi, dt=0.05, m2=M2, lam=LAM, rank=rank, n_steps=5)
    assert float(after.norm()) == pytest.approx(float(phi.norm()), rel=1e-13)


def test_norm_is_conserved_in_float32_over_a_thousand_steps() -> None:
    phi = make_noise(8, size=0.1).to(torch.complex64)
    after = stencil_evolve(phi, dt=0.01, m2=M2, lam=LAM, n_steps=1000)
    assert float(after.norm()) == pytest.approx(float(phi.norm()), rel=1e-4)


@forms
@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("k", [(0, 0, 0), (1, 0, 0), (2, 3, 1)])
def test_plane_wave_turns_at_its_own_frequency(
    evolve: Evolve, k: tuple[int, int, int], rank: int
) -> None:
    n, amplitude, dt, n_steps = 8, 0.7, 0.05, 20
    x = torch.arange(n, dtype=torch.float64)
    phase = 2.0 * math.pi / n * (k[0] * x[:, None, None] + k[1] * x[:, None] + k[2] * x)
    phi = torch.polar(torch.full_like(phase, amplitude), phase)
    frequency = sum(2.0 - 2.0 * math.cos(2.0 * math.pi * q / n) for q in k)
    frequency += M2 + LAM * amplitude ** (rank - 2)
    after = evolve(phi, dt=dt, m2=M2, lam=LAM, rank=rank, n_steps=n_steps)
    assert relative(after, phi * cmath.exp(-1j * frequency * dt * n_steps)) < 1e-13


@forms
def test_error_falls_with_the_square_of_the_step(evolve: Evolve) -> None:
    phi = make_smooth(8)
    exact = gp_evolve(phi, dt=0.4 / 512, m2=M2, lam=1.0, n_steps=512)
    errors = [relative(evolve(phi, dt=0.4 / n, m2=M2, lam=1.0, n_steps=n), exact) for n in (8, 16)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.02)


@forms
def test_energy_drifts_with_the_square_of_the_step(evolve: Evolve) -> None:
    phi = make_smooth(8)
    drifts = []
    for n in (20, 40):
        after = evolve(phi, dt=1.0 / n, m2=M2, lam=LAM, n_steps=n)
        drifts.append(abs(energy_of(after) / energy_of(phi) - 1.0))
    assert drifts[1] < 1e-4
    assert drifts[0] / drifts[1] == pytest.approx(4.0, rel=0.1)


@forms
def test_going_back_undoes_going_forth(evolve: Evolve) -> None:
    phi = make_noise(6)
    there = evolve(phi, dt=0.05, m2=M2, lam=LAM, n_steps=10)
    assert relative(evolve(there, dt=-0.05, m2=M2, lam=LAM, n_steps=10), phi) < 1e-12


@forms
@settings(deadline=None)
@given(angle=st.floats(0.0, 6.0, allow_subnormal=False), shift=st.tuples(*[st.integers(0, 5)] * 3))
def test_phase_and_place_of_the_whole_do_not_matter(
    evolve: Evolve, angle: float, shift: tuple[int, int, int]
) -> None:
    phi, constants = make_noise(6), {"dt": 0.03, "m2": M2, "lam": LAM, "n_steps": 2}
    moved = evolve(cmath.exp(1j * angle) * phi.roll(shift, (0, 1, 2)), **constants)
    expected = cmath.exp(1j * angle) * evolve(phi, **constants).roll(shift, (0, 1, 2))
    assert relative(moved, expected) < 1e-13


@pytest.mark.parametrize("n", [2, 3, 5, 6, 8, 13, 16])
@pytest.mark.parametrize("dt", [0.01, 0.3, -1.0])
def test_stencil_is_the_fourier_transform(n: int, dt: float) -> None:
    phi = make_noise(n)
    expected = gp_evolve(phi, dt=dt, m2=M2, lam=LAM, n_steps=3)
    assert relative(stencil_evolve(phi, dt=dt, m2=M2, lam=LAM, n_steps=3), expected) < 1e-13


@settings(deadline=None)
@given(dt=st.floats(-1.0, 1.0, allow_subnormal=False))
def test_hops_keep_the_norm(dt: float) -> None:
    amplitudes = hop_amplitudes(dt, precision=1e-17)
    total = amplitudes[0] ** 2 + 2.0 * sum(a * a for a in amplitudes[1:])
    assert total == pytest.approx(1.0, abs=1e-14)


def test_float32_needs_three_neighbours_on_each_side() -> None:
    assert len(hop_amplitudes(0.01, precision=torch.finfo(torch.float32).eps / 16.0)) == 4


@forms
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_gradients_are_those_of_finite_differences(evolve: Evolve, rank: int) -> None:
    phi = make_noise(3).requires_grad_()
    gradcheck: Callable[..., bool] = torch.autograd.gradcheck
    assert gradcheck(lambda x: evolve(x, dt=0.1, m2=M2, lam=LAM, rank=rank, n_steps=2), (phi,))


def test_symbol_is_that_of_the_three_point_laplacian() -> None:
    n = 6
    phi = make_noise(n)
    laplacian = sum(phi.roll(1, a) + phi.roll(-1, a) - 2.0 * phi for a in range(3))
    symbol = laplacian_symbol(n, dtype=torch.float64, device=phi.device)
    assert relative(torch.fft.ifftn(-symbol * torch.fft.fftn(phi)), laplacian) < 1e-14


@pytest.mark.parametrize(
    ("phi", "constants", "message"),
    [
        (torch.zeros(4, 4, 4), {}, r"phi must be complex, got torch.float32"),
        (torch.zeros(4, 4, 5, dtype=torch.cfloat), {}, r"\[n, n, n\], got \[4, 4, 5\]"),
        (torch.zeros(4, 4, dtype=torch.cfloat), {}, r"\[n, n, n\], got \[4, 4\]"),
        (torch.zeros(4, 4, 4, dtype=torch.cfloat), {"rank": 1}, r"rank must be at least 2, got 1"),
        (torch.zeros(4, 4, 4, dtype=torch.cfloat), {"n_steps": 0}, r"n_steps .* got 0"),
    ],
)
def test_wrong_inputs_are_named(
    phi: torch.Tensor, constants: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        gp_evolve(phi, dt=0.01, m2=M2, lam=LAM, **constants)


def test_a_step_too_long_for_the_stencil_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dt must be between -1 and 1, got 1.5"):
        hop_amplitudes(1.5, precision=1e-9)
