"""Evolution conserves norm and energy, and stencil, Fourier transforms and the naive form agree."""

from __future__ import annotations

import cmath
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.ops.condensate.hops import hop_amplitudes, make_condensate_hops, stencil_size
from ivhl.ops.condensate.waves import disperse_planes, dispersion, gp_evolve, laplacian_symbol
from tests.builders.condensates import (
    LAM,
    M2,
    as_is,
    by_fourier,
    by_stencil,
    dtypes,
    energy_of,
    frequency_of,
    make_noise,
    make_wave,
    naive_euler,
    potential_of,
    ranks,
    relative,
    shapes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.builders.condensates import Evolve

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

# Below, no subnormal floats: code compiled by torch 2.5 switches them off for the whole process
# (-ffast-math), and Hypothesis then refuses to draw them.


def naive(
    phi: torch.Tensor,
    *,
    dt: float,
    m2: float = M2,
    lam: float = LAM,
    rank: int = 4,
    n_steps: int = 1,
) -> torch.Tensor:
    return gp_evolve(phi, dt=dt, m2=m2, lam=lam, rank=rank, n_steps=n_steps)


# The naive form takes cubes only.
schemes = pytest.mark.parametrize(
    ("evolve", "shape"),
    [(naive, (6, 6, 6)), (by_fourier, (4, 5, 6)), (by_stencil, (4, 5, 6))],
    ids=["naive", "fourier", "stencil"],
)


def make_smooth(*shape: int) -> torch.Tensor:
    """Return a few long waves, of size 1."""
    wave = torch.ones(shape, dtype=torch.complex128)
    for axis, n in enumerate(shape):
        x = 2.0 * math.pi / n * torch.arange(n, dtype=torch.float64)
        line = torch.complex(0.6 + 0.5 * x.cos(), 0.3 * x.sin())
        wave = wave * line.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return wave


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize(
    ("evolve", "shape", "k"),
    [
        *((naive, (8, 8, 8), k) for k in ((0, 0, 0), (1, 0, 0), (2, 3, 1))),
        *(
            (evolve, shape, k)
            for evolve in (by_fourier, by_stencil)
            for shape, k in (
                ((7,), (3,)),
                ((1,), (0,)),
                ((8, 6), (1, 3)),
                ((4, 6, 5), (2, 3, 2)),
                ((8, 8, 8), (0, 0, 4)),
            )
        ),
    ],
)
def test_plane_wave_turns_at_its_own_frequency(
    evolve: Evolve, shape: tuple[int, ...], k: tuple[int, ...], rank: int
) -> None:
    amplitude, dt, n_steps = 0.7, 0.05, 20
    phi = make_wave(shape, k, amplitude)
    after = evolve(phi, dt=dt, rank=rank, n_steps=n_steps)
    frequency = frequency_of(shape, k, amplitude, rank)
    assert relative(after, phi * cmath.exp(-1j * frequency * dt * n_steps)) < 1e-13


@pytest.mark.parametrize("dt", [0.7, 5.0, -30.0])
def test_a_long_step_turns_waves_as_exactly(dt: float) -> None:
    phi = make_wave((4, 6, 5), (2, 3, 1), 0.7)
    frequency = frequency_of((4, 6, 5), (2, 3, 1), 0.7, 4)
    assert relative(by_fourier(phi, dt=dt), phi * cmath.exp(-1j * frequency * dt)) < 1e-13


@settings(deadline=None, max_examples=30)
@given(shape=shapes, rank=ranks, dt=st.floats(-0.3, 0.3, allow_subnormal=False))
def test_stencil_is_the_fourier_transform(shape: list[int], rank: int, dt: float) -> None:
    phi = make_noise(*shape)
    expected = by_fourier(phi, dt=dt, rank=rank, n_steps=2)
    actual = by_stencil(phi, dt=dt, rank=rank, n_steps=2)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5, 6, 8, 13, 16])
@pytest.mark.parametrize("dt", [0.01, 0.3, -1.0])
def test_all_schemes_agree_on_a_cube(n: int, dt: float) -> None:
    phi = make_noise(n, n, n)
    expected = naive(phi, dt=dt, n_steps=3)
    reach = len(hop_amplitudes(dt, precision=torch.finfo(torch.float64).eps / 16.0))
    by_hops = make_condensate_hops(as_is, rank=4, n_amplitudes=reach)
    assert relative(by_hops(phi, dt, M2, LAM, 3), expected) < 1e-13
    assert relative(by_fourier(phi, dt=dt, n_steps=3), expected) < 1e-13


@pytest.mark.parametrize(
    ("dtype", "dt", "size"),
    [
        (torch.complex64, 0.01, 4),
        (torch.complex64, 0.1, 8),
        (torch.complex64, 0.9, None),
        (torch.complex64, -1.5, None),
        (torch.complex128, 0.01, 8),
        (torch.complex128, 0.1, None),
    ],
)
def test_a_stencil_is_taken_where_it_is_exact(
    dtype: torch.dtype, dt: float, size: int | None
) -> None:
    assert stencil_size(dt, dtype) == size


@dtypes
def test_the_stencil_that_is_taken_is_exact_to_rounding(dtype: torch.dtype) -> None:
    phi = make_noise(9, 8, 10)
    # the largest steps that both sizes of stencil allow
    for dt in (0.0001, 0.001, 0.01, 0.018, 0.025, 0.1, 0.3):
        size = stencil_size(dt, dtype)
        if size is not None:
            after = make_condensate_hops(as_is, rank=4, n_amplitudes=size)(phi, dt, M2, LAM, 1)
            assert relative(after, by_fourier(phi, dt=dt)) < 4.0 * torch.finfo(dtype).eps


@settings(deadline=None)
@given(dt=st.floats(-1.0, 1.0, allow_subnormal=False))
def test_hops_keep_the_norm(dt: float) -> None:
    amplitudes = hop_amplitudes(dt, precision=1e-17)
    total = amplitudes[0] ** 2 + 2.0 * sum(a * a for a in amplitudes[1:])
    assert total == pytest.approx(1.0, abs=1e-14)


def test_float32_needs_three_neighbours_on_each_side() -> None:
    assert len(hop_amplitudes(0.01, precision=torch.finfo(torch.float32).eps / 16.0)) == 4


def test_a_step_too_long_for_the_stencil_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dt must be between -1 and 1, got 1.5"):
        hop_amplitudes(1.5, precision=1e-9)


def runge_kutta(phi: torch.Tensor, time: float, lam: float, n_steps: int) -> torch.Tensor:
    """Return the condensate by a method that knows nothing of splitting."""

    def rate(state: torch.Tensor) -> torch.Tensor:
        return naive_euler(state, dt=1.0, m2=M2, lam=lam, rank=4) - state

    dt = time / n_steps
    for _ in range(n_steps):
        a = rate(phi)
        b = rate(phi + 0.5 * dt * a)
        c = rate(phi + 0.5 * dt * b)
        d = rate(phi + dt * c)
        phi = phi + dt / 6.0 * (a + 2.0 * b + 2.0 * c + d)
    return phi


@schemes
def test_error_falls_with_the_square_of_the_step(evolve: Evolve, shape: tuple[int, ...]) -> None:
    phi = make_smooth(*shape)
    exact = runge_kutta(phi, 0.4, 1.0, 400)
    errors = [relative(evolve(phi, dt=0.4 / n, lam=1.0, n_steps=n), exact) for n in (8, 16)]
    assert errors[1] < 1e-3
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.02)


@schemes
def test_energy_drifts_with_the_square_of_the_step_and_the_potential_does_not_stay(
    evolve: Evolve, shape: tuple[int, ...]
) -> None:
    phi = make_smooth(*shape)
    drifts, potentials = [], []
    for n in (20, 40):
        after = evolve(phi, dt=1.0 / n, n_steps=n)
        drifts.append(abs(float(energy_of(after) / energy_of(phi)) - 1.0))
        ratio = potential_of(after, M2, LAM, 4) / potential_of(phi, M2, LAM, 4)
        potentials.append(abs(float(ratio) - 1.0))
    assert drifts[1] < 1e-4
    assert drifts[0] / drifts[1] == pytest.approx(4.0, rel=0.1)
    assert potentials[0] == pytest.approx(potentials[1], rel=0.01)
    assert potentials[1] > 100.0 * drifts[1]


@schemes
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 99), rank=ranks)
def test_norm_is_conserved(evolve: Evolve, shape: tuple[int, ...], seed: int, rank: int) -> None:
    phi = make_noise(*shape, seed=seed)
    after = evolve(phi, dt=0.05, rank=rank, n_steps=5)
    assert float(after.norm()) == pytest.approx(float(phi.norm()), rel=1e-13)


@pytest.mark.parametrize("evolve", [by_fourier, by_stencil], ids=["fourier", "stencil"])
def test_norm_is_conserved_in_float32_over_a_thousand_steps(evolve: Evolve) -> None:
    phi = make_noise(8, 8, 8, size=0.1, dtype=torch.complex64)
    after = evolve(phi, dt=0.01, rank=3, n_steps=1000)
    assert float(after.norm()) == pytest.approx(float(phi.norm()), rel=1e-4)


def test_rounded_turns_of_waves_do_not_add_up_to_growth() -> None:
    # multiplied by rounded exp(-i dt eps), waves would be off by up to 1e-3 by now
    re = im = torch.ones(4, 4, 4)
    for dt in (0.013, 0.3, 2.0):
        turns = dispersion(torch.complex(re, im), dt)
        x, y = re, im
        for _ in range(20_000):
            x, y = disperse_planes(64.0 * x, 64.0 * y, *turns)
        assert float(((x * x + y * y) / 2.0 - 1.0).abs().max()) < 5e-5


@schemes
def test_going_back_undoes_going_forth(evolve: Evolve, shape: tuple[int, ...]) -> None:
    phi = make_noise(*shape)
    there = evolve(phi, dt=0.05, n_steps=10)
    assert relative(evolve(there, dt=-0.05, n_steps=10), phi) < 1e-12


@schemes
@settings(deadline=None, max_examples=30)
@given(angle=st.floats(0.0, 6.0, allow_subnormal=False), shift=st.tuples(*[st.integers(0, 5)] * 3))
def test_phase_and_place_of_the_whole_do_not_matter(
    evolve: Evolve, shape: tuple[int, ...], angle: float, shift: tuple[int, int, int]
) -> None:
    phi = make_noise(*shape)
    moved = evolve(cmath.exp(1j * angle) * phi.roll(shift, (0, 1, 2)), dt=0.03, n_steps=2)
    expected = evolve(phi, dt=0.03, n_steps=2).roll(shift, (0, 1, 2))
    assert relative(moved, cmath.exp(1j * angle) * expected) < 1e-13


@pytest.mark.parametrize("evolve", [by_fourier, by_stencil], ids=["fourier", "stencil"])
def test_a_bright_soliton_keeps_its_form_as_the_grid_gets_finer(evolve: Evolve) -> None:
    errors = []
    for height in (0.2, 0.1):
        x = torch.arange(400, dtype=torch.float64) - 200.0
        form = height / torch.cosh(height * x)
        n_steps = round(0.5 / height**2 / 0.05)
        after = evolve(form.to(torch.complex128), dt=0.05, m2=0.0, lam=-2.0, n_steps=n_steps)
        errors.append(relative(after, form * cmath.exp(1j * height**2 * 0.05 * n_steps)))
    assert errors[1] < 2e-3
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.1)


def test_symbol_is_that_of_the_three_point_laplacian() -> None:
    n = 6
    phi = make_noise(n, n, n)
    laplacian = sum(phi.roll(1, a) + phi.roll(-1, a) - 2.0 * phi for a in range(3))
    symbol = laplacian_symbol(n, dtype=torch.float64, device=phi.device)
    assert relative(torch.fft.ifftn(-symbol * torch.fft.fftn(phi)), laplacian) < 1e-14


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_gradients_of_the_naive_form_are_those_of_finite_differences(rank: int) -> None:
    phi = make_noise(3, 3, 3).requires_grad_()
    gradcheck: Callable[..., bool] = torch.autograd.gradcheck
    assert gradcheck(lambda x: naive(x, dt=0.1, rank=rank, n_steps=2), (phi,))


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
def test_wrong_inputs_of_the_naive_form_are_named(
    phi: torch.Tensor, constants: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        gp_evolve(phi, dt=0.01, m2=M2, lam=LAM, **constants)
