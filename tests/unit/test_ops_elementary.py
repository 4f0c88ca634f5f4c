"""Short polynomials are accurate to float32 rounding."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.ops.elementary import cos_sin_of_turns, tanh, turns_of

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

# Below, no subnormal floats: code compiled by torch 2.5 switches them off for the whole process
# (-ffast-math), and Hypothesis then refuses to draw them.


@settings(deadline=None)
@given(turns=st.floats(-1e4, 1e4, width=32, allow_subnormal=False))
def test_cosine_and_sine_of_turns_are_good_to_float32(turns: float) -> None:
    sign, cos, sin = cos_sin_of_turns(torch.tensor(turns, dtype=torch.float32))
    angle = 2.0 * math.pi * math.fmod(turns, 1.0)
    assert float(sign * cos) == pytest.approx(math.cos(angle), abs=2e-7)
    assert float(sign * sin) == pytest.approx(math.sin(angle), abs=2e-7)


coordinates = st.floats(-10.0, 10.0, width=32, allow_subnormal=False)


@settings(deadline=None)
@given(y=coordinates, x=coordinates)
def test_angles_in_turns_are_good_to_float32(y: float, x: float) -> None:
    turns = float(turns_of(torch.tensor(y), torch.tensor(x)))
    assert turns == pytest.approx(math.atan2(y + 0.0, x + 0.0) / (2.0 * math.pi), abs=1e-7)


@pytest.mark.parametrize("y", [-2.0, -1.0, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("x", [-2.0, -1.0, 0.0, 1.0, 2.0])
def test_gradient_of_an_angle_is_right_on_axes_and_diagonals(y: float, x: float) -> None:
    at = torch.tensor([y, x], requires_grad=True)
    (gradient,) = torch.autograd.grad(turns_of(at[0], at[1]), at)
    square = 2.0 * math.pi * (x * x + y * y)
    assert bool(torch.isfinite(gradient).all())
    if square:
        expected = torch.tensor([x / square, -y / square])
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(x=st.floats(0.0, 100.0, width=32, allow_subnormal=False))
def test_hyperbolic_tangent_is_good_to_float32(x: float) -> None:
    assert float(tanh(torch.tensor(x))) == pytest.approx(math.tanh(x), rel=5e-7, abs=1e-37)


def test_hyperbolic_tangent_never_passes_one_by_more_than_rounding() -> None:
    x = torch.linspace(5.0, 20.0, 10001)
    assert float(tanh(x).max()) <= 1.0 + 2.0 * torch.finfo(torch.float32).eps
