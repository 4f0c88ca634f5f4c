"""Evolution conserves energy and norm, and real planes agree with the complex formulas."""

from __future__ import annotations

import cmath
import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.ops.condensate.energy import compute_condensate_energy, make_condensate_energy
from ivhl.ops.condensate.euler import (
    condensate_euler,
    evolve_condensate_euler,
    make_condensate_euler,
    make_condensate_euler_planes,
)
from ivhl.ops.condensate.hops import make_condensate_hops, stencil_size
from ivhl.ops.condensate.potential import (
    compute_condensate_potential,
    condensate_potential,
    make_condensate_potential,
    make_condensate_potential_planes,
)
from ivhl.ops.condensate.strang import evolve_condensate_gp
from ivhl.ops.condensate.waves import disperse_planes, dispersion, make_condensate_strang

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Evolve = Callable[..., torch.Tensor]

# Torch's own, from one release or another.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]

M2, LAM = -0.5, 0.1

ranks = st.integers(2, 6)
shapes = st.lists(st.integers(0, 5), min_size=1, max_size=3)


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


eulers = pytest.mark.parametrize("step", [naive_euler, euler], ids=["naive", "planes"])
schemes = pytest.mark.parametrize("evolve", [by_fourier, by_stencil], ids=["fourier", "stencil"])
dtypes = pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)


def make_noise(
    *shape: int, size: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.complex128
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (size * torch.randn(shape, dtype=torch.complex128, generator=generator)).to(dtype)


def make_smooth(*shape: int) -> torch.Tensor:
    """Return a few long waves, of size 1."""
    wave = torch.ones(shape, dtype=torch.complex128)
    for axis, n in enumerate(shape):
        x = 2.0 * math.pi / n * torch.arange(n, dtype=torch.float64)
        line = torch.complex(0.6 + 0.5 * x.cos(), 0.3 * x.sin())
        wave = wave * line.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return wave


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


# --- potential and energy ------------------------------------------------------------------------


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


# --- explicit Euler ------------------------------------------------------------------------------


@settings(deadline=None)
@given(shape=shapes, rank=ranks, seed=st.integers(0, 99))
def test_planes_of_an_euler_step_are_the_formula(shape: list[int], rank: int, seed: int) -> None:
    phi = make_noise(*shape, seed=seed)
    constants: dict[str, Any] = {"dt": 0.03, "m2": M2, "lam": LAM, "rank": rank}
    expected = naive_euler(phi, **constants)
    torch.testing.assert_close(euler(phi, **constants), expected, rtol=1e-13, atol=1e-13)
    short = euler(phi.to(torch.complex64), **constants)
    torch.testing.assert_close(short, expected.to(torch.complex64), rtol=1e-5, atol=1e-5)


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


# --- Strang splitting ----------------------------------------------------------------------------


@schemes
@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize(
    ("shape", "k"),
    [((7,), (3,)), ((1,), (0,)), ((8, 6), (1, 3)), ((4, 6, 5), (2, 3, 2)), ((8, 8, 8), (0, 0, 4))],
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
def test_error_falls_with_the_square_of_the_step(evolve: Evolve) -> None:
    phi = make_smooth(4, 5, 6)
    exact = runge_kutta(phi, 0.4, 1.0, 400)
    errors = [relative(evolve(phi, dt=0.4 / n, lam=1.0, n_steps=n), exact) for n in (8, 16)]
    assert errors[1] < 1e-3
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.02)


@schemes
def test_energy_drifts_with_the_square_of_the_step_and_the_potential_does_not_stay(
    evolve: Evolve,
) -> None:
    phi = make_smooth(6, 7, 8)
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
def test_norm_is_conserved(evolve: Evolve, seed: int, rank: int) -> None:
    phi = make_noise(4, 5, 6, seed=seed)
    after = evolve(phi, dt=0.05, rank=rank, n_steps=5)
    assert float(after.norm()) == pytest.approx(float(phi.norm()), rel=1e-13)


@schemes
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
def test_going_back_undoes_going_forth(evolve: Evolve) -> None:
    phi = make_noise(4, 5, 6)
    there = evolve(phi, dt=0.05, n_steps=10)
    assert relative(evolve(there, dt=-0.05, n_steps=10), phi) < 1e-12


@schemes
@settings(deadline=None, max_examples=30)
@given(angle=st.floats(0.0, 6.0, allow_subnormal=False), shift=st.tuples(*[st.integers(0, 5)] * 3))
def test_phase_and_place_of_the_whole_do_not_matter(
    evolve: Evolve, angle: float, shift: tuple[int, int, int]
) -> None:
    phi = make_noise(4, 5, 6)
    moved = evolve(cmath.exp(1j * angle) * phi.roll(shift, (0, 1, 2)), dt=0.03, n_steps=2)
    expected = evolve(phi, dt=0.03, n_steps=2).roll(shift, (0, 1, 2))
    assert relative(moved, cmath.exp(1j * angle) * expected) < 1e-13


@schemes
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


# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "function",
    [
        lambda phi, rank: potential_of(phi, M2, LAM, rank),
        lambda phi, rank: energy_of(phi, rank=rank),
        lambda phi, rank: euler(phi, dt=0.1, m2=M2, lam=LAM, rank=rank),
        lambda phi, rank: by_fourier(phi, dt=0.1, rank=rank, n_steps=2),
        lambda phi, rank: by_stencil(phi, dt=0.1, rank=rank, n_steps=2),
    ],
    ids=["potential", "energy", "euler", "fourier", "stencil"],
)
def test_gradients_are_those_of_finite_differences(function: Evolve, rank: int) -> None:
    phi = make_noise(2, 3, 2).requires_grad_()
    gradcheck: Callable[..., bool] = torch.autograd.gradcheck
    assert gradcheck(partial(function, rank=rank), (phi,))


def test_the_gradient_is_finite_where_there_is_no_condensate() -> None:
    phi = torch.zeros(3, 4, dtype=torch.complex64, requires_grad=True)
    total = potential_of(phi, M2, LAM, 3) + energy_of(phi, rank=3)
    for after in (euler(phi, dt=0.1, m2=M2, lam=LAM, rank=3), by_stencil(phi, dt=0.1, rank=3)):
        total = total + after.real.sum()
    (slope,) = torch.autograd.grad(total, phi)
    assert bool(torch.isfinite(torch.view_as_real(slope)).all())


def test_gradients_work_after_a_call_in_inference_mode() -> None:
    phi = make_noise(3, 4, 5)
    with torch.inference_mode():
        potential_of(phi, 0.321, LAM, 3)
    leaf = phi.clone().requires_grad_()
    potential_of(leaf, 0.321, LAM, 3).backward()
    assert leaf.grad is not None


# --- inputs --------------------------------------------------------------------------------------


@dtypes
@pytest.mark.parametrize(
    "view",
    [
        lambda phi: phi.transpose(0, 2),
        lambda phi: phi[::2, 1:, ::3],
        lambda phi: phi[1].t(),
        lambda phi: phi[:1, 0, 0].expand(5),
        lambda phi: phi.conj(),
    ],
    ids=["transposed", "steps", "two axes", "expanded", "conjugate"],
)
def test_strides_do_not_matter_and_inputs_are_left_alone(view: Evolve, dtype: torch.dtype) -> None:
    phi = make_noise(6, 5, 7, dtype=dtype)
    before, viewed = phi.clone(), view(phi)
    plain = torch.complex(viewed.real.contiguous(), viewed.imag.contiguous())
    functions: list[Evolve] = [
        lambda phi: potential_of(phi, M2, LAM, 3),
        energy_of,
        lambda phi: euler(phi, dt=0.1, m2=M2, lam=LAM, rank=3),
        lambda phi: by_fourier(phi, dt=0.1, n_steps=2),
        lambda phi: by_stencil(phi, dt=0.1, n_steps=2),
    ]
    for function in functions:
        assert torch.equal(function(viewed), function(plain))
    assert torch.equal(phi, before)


FIELD = torch.zeros(4, 4, 4, dtype=torch.complex64)
OPERATIONS: dict[str, Evolve] = {
    "potential": lambda phi, dt=0.1, **kwargs: compute_condensate_potential(  # noqa: ARG005
        phi, **kwargs
    ),
    "energy": lambda phi, dt=0.1, **kwargs: compute_condensate_energy(  # noqa: ARG005
        phi, **kwargs
    ),
    "euler": lambda phi, dt=0.1, **kwargs: evolve_condensate_euler(phi, dt, **kwargs),
    "strang": lambda phi, dt=0.1, **kwargs: evolve_condensate_gp(phi, dt, **kwargs),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize(
    ("phi", "constants", "message"),
    [
        (FIELD.real, {}, r"phi must be complex64 or complex128, got torch.float32"),
        (FIELD.real.int(), {}, r"phi must be complex64 or complex128, got torch.int32"),
        (FIELD[0, 0, 0], {}, r"phi must have 1 to 3 axes, got shape \[\]"),
        (FIELD[None], {}, r"phi must have 1 to 3 axes, got shape \[1, 4, 4, 4\]"),
        (FIELD, {"rank": 1}, r"rank must be an integer of at least 2, got 1"),
        (FIELD, {"rank": 33}, r"rank must be at most 32, got 33"),
        (FIELD, {"rank": 2.5}, r"rank must be an integer of at least 2, got 2.5"),
        (FIELD, {"mass_sq": math.nan}, r"mass_sq must be a finite Python number, got nan"),
        (FIELD, {"mass_sq": torch.tensor(1.0)}, r"mass_sq must be .* number, got tensor\(1\.\)"),
        (FIELD, {"lambda_coupling": -math.inf}, r"lambda_coupling must be .* got -inf"),
        (FIELD, {"lambda_coupling": 1j}, r"lambda_coupling must be .* got 1j"),
    ],
)
def test_wrong_inputs_are_named(
    operation: Evolve, phi: torch.Tensor, constants: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        operation(phi, **{"mass_sq": M2, "lambda_coupling": LAM, "rank": 3, **constants})


def test_wrong_steps_are_named() -> None:
    for evolve in (evolve_condensate_euler, evolve_condensate_gp):
        with pytest.raises(ValueError, match=r"dt must be a finite Python number, got inf"):
            evolve(FIELD, math.inf, M2, LAM)
    with pytest.raises(ValueError, match=r"n_steps must be an integer of at least 1, got 0"):
        evolve_condensate_gp(FIELD, 0.1, M2, LAM, n_steps=0)


# --- compiled ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _fresh_dynamo() -> Iterator[None]:
    try:
        torch._dynamo.eval_frame.check_if_dynamo_supported()
    except RuntimeError as error:
        pytest.skip(str(error))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize(
    ("compiled", "expected"),
    [
        pytest.param(
            lambda phi, scale: compute_condensate_potential(phi, M2 * scale, LAM * scale),
            lambda phi, scale: potential_of(phi, M2 * scale, LAM * scale, 3),
            id="potential",
        ),
        pytest.param(
            lambda phi, scale: compute_condensate_energy(phi, M2 * scale, LAM * scale),
            lambda phi, scale: energy_of(phi, M2 * scale, LAM * scale, 3),
            id="energy",
        ),
        pytest.param(
            lambda phi, scale: evolve_condensate_euler(phi, 0.01 * scale, M2, LAM),
            lambda phi, scale: euler(phi, dt=0.01 * scale, m2=M2, lam=LAM, rank=3),
            id="euler",
        ),
        pytest.param(
            lambda phi, scale: evolve_condensate_gp(phi, 0.01 * scale, M2, LAM, n_steps=2),
            lambda phi, scale: by_stencil(phi, dt=0.01 * scale, rank=3, n_steps=2),
            id="stencil",
        ),
        pytest.param(
            lambda phi, scale: evolve_condensate_gp(phi, 0.7 * scale, M2, LAM, n_steps=2),
            lambda phi, scale: by_fourier(phi, dt=0.7 * scale, rank=3, n_steps=2),
            id="fourier",
        ),
    ],
)
def test_compiled_once_for_all_sizes_and_constants(compiled: Evolve, expected: Evolve) -> None:
    phi = make_noise(12, 10, 9, size=0.1, dtype=torch.complex64)
    torch.testing.assert_close(compiled(phi, 1.0), expected(phi, 1.0), rtol=1e-5, atol=1e-6)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for shape, scale in (((6, 17, 8), 1.5), ((16, 16, 16), 0.8), ((130, 40, 60), 1.0)):
            phi = make_noise(*shape, size=0.1, dtype=torch.complex64)
            torch.testing.assert_close(
                compiled(phi, scale), expected(phi, scale), rtol=1e-5, atol=1e-6
            )


# Dynamo looks at the .grad of everything that it is given.
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)
@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize(
    ("compiled", "expected"),
    [
        pytest.param(
            lambda phi: compute_condensate_potential(phi, M2, LAM),
            lambda phi: potential_of(phi, M2, LAM, 3),
            id="potential",
        ),
        pytest.param(
            lambda phi: compute_condensate_energy(phi, M2, LAM),
            lambda phi: energy_of(phi, M2, LAM, 3),
            id="energy",
        ),
        pytest.param(
            lambda phi: evolve_condensate_euler(phi, 0.1, M2, LAM),
            lambda phi: naive_euler(phi, dt=0.1, m2=M2, lam=LAM, rank=3),
            id="euler",
        ),
        pytest.param(
            lambda phi: evolve_condensate_gp(phi, 0.01, M2, LAM),
            lambda phi: by_fourier(phi, dt=0.01, rank=3),
            id="stencil",
        ),
        pytest.param(
            lambda phi: evolve_condensate_gp(phi, 0.7, M2, LAM, n_steps=2),
            lambda phi: by_stencil(phi, dt=0.7, rank=3, n_steps=2),
            id="fourier",
        ),
    ],
)
def test_compiled_gradient_is_the_eager_one(compiled: Evolve, expected: Evolve) -> None:
    slopes = []
    for function in (compiled, expected):
        leaf = make_noise(5, 6, 7).requires_grad_()
        result = function(leaf)
        weight = make_noise(*result.shape, seed=1)
        (slope,) = torch.autograd.grad((weight.conj() * result).real.sum(), leaf)
        slopes.append(slope)
    assert relative(*slopes) < 1e-12


# --- planes from step to step --------------------------------------------------------------------

cubes = st.tuples(*(st.integers(1, 5) for _ in range(3)))


def as_stack(phi: torch.Tensor) -> torch.Tensor:
    return torch.stack((phi.real, phi.imag))


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
