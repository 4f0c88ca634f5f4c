"""Intensity, norm and phase gradient are those of the formulas, on any grid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from benchmarks.field.phase_gradient.reference import reference
from ivhl.ops.complex_field import (
    angle_of_words,
    compute_intensity,
    compute_phase_gradient,
    current_slopes,
    intensity_of_parts,
    make_phase_gradient,
    normalize_field,
    normalize_parts,
    phase_gradient,
)
from ivhl.ops.words import planes_of_words, words_of_planes

if TYPE_CHECKING:
    from collections.abc import Callable

    Gradient = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    # Torch's own, while it compiles, each from one release or another.
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]


def current(field: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return current_slopes(torch.view_as_real(field))


numbers = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
planes = make_phase_gradient(lambda f: f)
forms = pytest.mark.parametrize("gradient", [phase_gradient, planes], ids=["naive", "planes"])


def make_noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex128) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.complex128, generator=generator).to(dtype)


def make_wave(n: int, k: float, start: float = 0.0) -> torch.Tensor:
    """Return a plane wave on ``n`` points, its modulus changing along the way."""
    x = torch.arange(n, dtype=torch.float64)
    return torch.polar(torch.ones_like(x), k * x + start)


@forms
@pytest.mark.parametrize("k", [0.2, -0.05])
def test_angle_form_is_exact_where_the_phase_is_linear_and_does_not_pass_pi(
    gradient: Gradient, k: float
) -> None:
    (slope,) = gradient((1.0 + make_wave(12, 0.3).real ** 2) * make_wave(12, k))
    torch.testing.assert_close(slope, torch.full_like(slope, k))


@forms
def test_angle_form_is_off_by_pi_on_both_sides_of_the_cut(gradient: Gradient) -> None:
    # The phase passes pi between points 5 and 6.
    (slope,) = gradient(make_wave(12, 0.2, start=math.pi - 1.1))
    expected = torch.full_like(slope, 0.2)
    expected[5:7] -= math.pi
    torch.testing.assert_close(slope, expected)


@pytest.mark.parametrize("start", [0.0, 2.0, math.pi - 1.1])
def test_current_form_knows_no_cut_and_gives_the_sine_of_the_wave_number(start: float) -> None:
    (slope,) = current(1.7 * make_wave(12, 0.2, start=start))
    torch.testing.assert_close(slope, torch.full_like(slope, math.sin(0.2)))


def test_current_form_goes_over_into_the_angle_form_for_long_waves() -> None:
    angle = torch.sin(2.0 * math.pi * torch.arange(1000, dtype=torch.float64) / 1000.0)
    field = torch.polar(torch.ones_like(angle), angle)
    (from_angle,), (from_current,) = planes(field), current(field)
    torch.testing.assert_close(from_current, from_angle, rtol=1e-4, atol=1e-6)


def test_current_form_is_zero_where_the_field_is() -> None:
    field = make_noise(3, 4)
    field[1, 2] = 0.0
    for slope in current(field):
        assert float(slope[1, 2]) == 0.0
        assert bool(torch.isfinite(slope).all())


@forms
@pytest.mark.parametrize("shape", [(2,), (7,), (2, 3), (4, 2, 5), (2, 2, 3, 2)])
def test_slopes_are_those_of_picked_neighbours(gradient: Gradient, shape: tuple[int, ...]) -> None:
    field = make_noise(*shape)
    slopes = gradient(field)
    assert len(slopes) == len(shape)
    for actual, expected in zip(slopes, reference(field), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-13)


@forms
@settings(deadline=None)
@given(angle=st.floats(-0.4, 0.4, allow_subnormal=False))
def test_a_common_phase_does_not_matter_away_from_the_cut(
    gradient: Gradient, angle: float
) -> None:
    field = make_wave(8, 0.3, start=-1.0)
    turned = field * complex(math.cos(angle), math.sin(angle))
    torch.testing.assert_close(gradient(turned), gradient(field), rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(re=numbers, im=numbers)
@example(re=-1.0, im=-2.6141424053689367e-18)  # minus pi to the last digit, and not on the cut
@example(re=-1.0, im=-0.0)
@example(re=-0.0, im=0.0)
def test_words_have_the_angle_of_their_number(re: float, im: float) -> None:
    number = torch.tensor([complex(re, im)], dtype=torch.complex64)
    (angle,) = angle_of_words(number.view(torch.float64)).tolist()
    # Plus zero: a negative zero counts as zero, so on the cut the angle is pi.
    exact = math.atan2(number.imag.item() + 0.0, number.real.item() + 0.0)
    assert abs(angle - exact) < 1e-6
    assert -math.pi - 1e-6 < angle < math.pi + 1e-6


@settings(deadline=None)
@given(re=numbers, im=numbers)
def test_words_are_taken_apart_and_put_together(re: float, im: float) -> None:
    number = torch.tensor([complex(re, im)], dtype=torch.complex64)
    words = number.view(torch.float64)
    parts = planes_of_words(words)
    assert torch.equal(torch.complex(*parts), number)
    assert torch.equal(words_of_planes(*parts).view(torch.int64), words.view(torch.int64))


def test_gradients_are_those_of_finite_differences() -> None:
    field = make_noise(3, 4).requires_grad_()
    assert torch.autograd.gradcheck(planes, field)
    assert torch.autograd.gradcheck(lambda x: current_slopes(torch.view_as_real(x)), field)
    parts = torch.view_as_real(make_noise(5)).requires_grad_()
    assert torch.autograd.gradcheck(intensity_of_parts, parts)
    assert torch.autograd.gradcheck(normalize_parts, parts)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (1, 1), (3, 0)])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_intensity_and_norm_of_nothing_and_of_one_number(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    field = make_noise(*shape, dtype=dtype)
    intensity, normalized = compute_intensity(field), normalize_field(field)
    torch.testing.assert_close(intensity, field.abs().square())
    torch.testing.assert_close(normalized, field / (field.norm() + 1e-10))


def test_a_field_of_zeros_stays_one_and_has_a_finite_gradient() -> None:
    field = torch.zeros(1, dtype=torch.complex128, requires_grad=True)
    normalized = normalize_field(field)
    assert float(normalized.detach().abs().max()) == 0.0
    (gradient,) = torch.autograd.grad(normalized.real.sum(), field)
    assert bool(torch.isfinite(torch.view_as_real(gradient)).all())


@pytest.mark.parametrize("operation", [compute_intensity, normalize_field, compute_phase_gradient])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_fields_that_are_not_complex_are_refused(
    operation: Callable[..., object], dtype: torch.dtype
) -> None:
    with pytest.raises(ValueError, match=rf"field must be complex64 .* got {dtype}"):
        operation(torch.ones(4, dtype=dtype))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (5, 1)])
@pytest.mark.parametrize("gradient", [phase_gradient, compute_phase_gradient])
def test_axes_without_a_difference_are_refused(gradient: Gradient, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"field must have axes of at least 2 points each, got"):
        gradient(torch.ones(shape, dtype=torch.complex64))


def test_forms_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"form must be one of angle, current, got 'phase'"):
        compute_phase_gradient(make_noise(4), form="phase")  # type: ignore[arg-type]


# Compiling costs seconds, so the tests below share what the module under test compiles.


@pytest.fixture(scope="module", autouse=True)
def _compiled_once() -> None:
    torch._dynamo.reset()


needs_dynamo = pytest.mark.usefixtures("_dynamo")


@pytest.fixture
def _dynamo() -> None:
    try:
        torch._dynamo.eval_frame.check_if_dynamo_supported()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.mark.full
@needs_dynamo
def test_sizes_strides_and_conjugates_of_a_field_share_their_graphs() -> None:
    counters = torch._dynamo.utils.counters
    counters.clear()
    for shape in [(7, 11, 13), (16, 16, 16), (40, 40, 40)]:
        field = make_noise(*shape, dtype=torch.complex64)
        before = field.clone()
        for view in (field, field.conj(), field.movedim(0, -1)):
            exact = view.to(torch.complex128)
            torch.testing.assert_close(
                compute_intensity(view).double(), exact.abs().square(), rtol=1e-6, atol=1e-6
            )
            expected = exact / exact.abs().square().sum().sqrt()
            normalized = normalize_field(view).to(torch.complex128)
            torch.testing.assert_close(normalized, expected, rtol=1e-5, atol=1e-8)
        assert torch.equal(field, before)
    # One of each; 2.15 makes one more, for a reason that was not found.
    assert counters["stats"]["unique_graphs"] <= 3
    assert not counters["graph_break"]


@pytest.mark.full
@needs_dynamo
@pytest.mark.parametrize("form", ["angle", "current"])
def test_sizes_of_a_cube_need_no_recompile_of_its_phase_gradient(form: str) -> None:
    counters = torch._dynamo.utils.counters
    counters.clear()
    for n in (16, 20, 32):
        field = make_noise(n, n, n, seed=n, dtype=torch.complex64)
        # A current divides by the density, so noise near zero is kept away from it.
        field = field + 5.0 if form == "current" else field
        exact = field.to(torch.complex128)
        slopes = compute_phase_gradient(field, form=form)  # type: ignore[arg-type]
        expected = reference(exact) if form == "angle" else current(exact)
        for actual, wanted in zip(slopes, expected, strict=True):
            torch.testing.assert_close(actual.double(), wanted, rtol=1e-5, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == (2 if form == "angle" else 1)
    assert not counters["graph_break"]


# Dynamo looks at the .grad of everything that it is given.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@needs_dynamo
@pytest.mark.parametrize(
    ("compiled", "naive"),
    [
        pytest.param(compute_intensity, lambda psi: psi.abs().square(), id="intensity"),
        pytest.param(
            normalize_field,
            lambda psi: psi / (psi.abs().square().sum().sqrt() + 1e-10),
            id="normalize",
        ),
        pytest.param(compute_phase_gradient, phase_gradient, id="angle", marks=pytest.mark.full),
        pytest.param(
            lambda psi: compute_phase_gradient(psi, form="current"),
            current,
            id="current",
            marks=pytest.mark.full,
        ),
    ],
)
def test_compiled_gradient_is_that_of_eager(
    compiled: Callable[[torch.Tensor], Any], naive: Callable[[torch.Tensor], Any]
) -> None:
    gradients = []
    for function in (compiled, naive):
        field = make_noise(4, 5, 6).requires_grad_()
        outputs = function(field)
        values = torch.stack(outputs if isinstance(outputs, tuple) else (outputs,))
        generator = torch.Generator().manual_seed(1)
        weight = torch.randn(values.shape, dtype=values.dtype, generator=generator)
        loss = (weight.conj() * values).real.sum()
        gradients.append(torch.autograd.grad(loss, field)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-10)
