"""Vortices have the winding of their charges, and all forms agree."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from benchmarks.vortex.vortex_field import WORKLOAD
from benchmarks.vortex.vortex_field.calls import make_inputs
from benchmarks.vortex.vortex_field.reference import reference
from ivhl.ops.vortex import (
    compute_vortex_field,
    make_vortex_field,
    vortex_field,
    vortex_planes,
    whole_vortex_planes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Field = Callable[..., torch.Tensor]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    # Torch's own, while it compiles, each from one release or another.
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]

# Below, no subnormal floats: code compiled by torch 2.5 switches them off for the whole process
# (-ffast-math), and Hypothesis then refuses to draw them.


def planes(*inputs: Any) -> torch.Tensor:  # noqa: ANN401
    return torch.complex(*vortex_planes(*inputs))


forms = pytest.mark.parametrize("field", [vortex_field, planes], ids=["naive", "planes"])


def vortices(*places_and_charges: tuple[float, float, float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return centres in the plane z = 0, and their charges, from triples of x, y and charge."""
    table = torch.tensor(places_and_charges, dtype=torch.float64)
    centers = torch.cat((table[:, :2], torch.zeros(len(table), 1, dtype=torch.float64)), dim=1)
    return centers, table[:, 2]


def ring(x: float, y: float, radius: float, n: int = 400) -> torch.Tensor:
    """Return points on a circle in the plane z = 0, counterclockwise."""
    angle = 2.0 * math.pi / n * (torch.arange(n, dtype=torch.float64) + 0.37)
    return torch.stack(
        (x + radius * angle.cos(), y + radius * angle.sin(), torch.zeros_like(angle)), dim=1
    )


def winding_of(psi: torch.Tensor) -> float:
    """Return how often the phase goes round along a closed line of points."""
    return float((psi.roll(-1) * psi.conj()).angle().sum() / (2.0 * math.pi))


def make_scene(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[torch.Tensor, ...]:
    size = WORKLOAD.sizes["small"]
    inputs = make_inputs(size, torch.Generator().manual_seed(seed))
    return tuple(x.to(dtype) for x in inputs)


@forms
@pytest.mark.parametrize("charge", [-2, -1, 0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_phase_winds_as_often_as_the_charge(field: Field, charge: int, dtype: torch.dtype) -> None:
    centers, charges = vortices((0.2, -0.1, charge))
    psi = field(ring(0.2, -0.1, 0.7).to(dtype), centers.to(dtype), charges.to(dtype))
    assert winding_of(psi) == pytest.approx(charge, abs=1e-5)


@forms
@settings(deadline=None)
@given(charges=st.lists(st.integers(-3, 3), min_size=3, max_size=3))
def test_a_ring_counts_the_charges_inside_it(field: Field, charges: list[int]) -> None:
    inside, also_inside, outside = charges
    system = vortices((0.3, 0.0, inside), (-0.2, 0.4, also_inside), (3.0, 1.0, outside))
    psi = field(ring(0.0, 0.0, 1.0), *system)
    assert winding_of(psi) == pytest.approx(inside + also_inside, abs=1e-9)


@forms
def test_half_a_charge_has_a_cut_and_no_winding(field: Field) -> None:
    psi = field(ring(0.0, 0.0, 1.0), *vortices((0.0, 0.0, 0.5)))
    assert winding_of(psi) == pytest.approx(0.0, abs=1e-9)
    step = (psi.roll(-1) * psi.conj()).angle().abs()
    assert float(step.max()) > 3.0  # across theta = pi, by pi
    assert int((step > 0.1).sum()) == 1


@forms
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_field_vanishes_at_every_centre_and_is_one_far_away(
    field: Field, dtype: torch.dtype
) -> None:
    centers, charges = (x.to(dtype) for x in vortices((0.2, 0.1, 1.0), (-0.4, 0.3, -2.0)))
    assert float(field(centers, centers, charges).abs().max()) < 1e-15
    far = field(centers + 100.0, centers, charges).abs()
    torch.testing.assert_close(far, torch.ones(2, dtype=dtype), rtol=3e-7, atol=0.0)


@forms
def test_modulus_is_the_hyperbolic_tangent_of_the_distance_in_space(field: Field) -> None:
    points = torch.tensor([[0.03, 0.04, 0.12], [0.0, 0.0, 0.2]], dtype=torch.float64)
    psi = field(points, *vortices((0.0, 0.0, 1.0)), 0.26)
    expected = torch.tensor([0.13 / 0.26, 0.2 / 0.26], dtype=torch.float64).tanh()
    torch.testing.assert_close(psi.abs(), expected)


@forms
def test_vortex_and_antivortex_in_one_place_leave_the_modulus(field: Field) -> None:
    points = make_scene()[0]
    psi = field(points, *vortices((0.1, 0.2, 2.0), (0.1, 0.2, -2.0)))
    torch.testing.assert_close(psi.imag, torch.zeros_like(psi.imag))
    assert float(psi.real.min()) >= 0.0


@forms
@settings(deadline=None)
@given(shift=st.lists(st.floats(-5.0, 5.0, allow_subnormal=False), min_size=3, max_size=3))
def test_field_moves_with_its_centres_and_is_the_product_of_its_parts(
    field: Field, shift: list[float]
) -> None:
    points, centers, charges = make_scene()
    by = torch.tensor(shift, dtype=torch.float64)
    whole = field(points, centers, charges)
    moved = field(points + by, centers + by, charges)
    torch.testing.assert_close(moved, whole, rtol=1e-9, atol=1e-9)
    parts = field(points, centers[:1], charges[:1]) * field(points, centers[1:], charges[1:])
    torch.testing.assert_close(whole, parts)


@forms
def test_field_is_that_of_whole_powers(field: Field) -> None:
    inputs = make_scene()
    torch.testing.assert_close(field(*inputs), reference(*inputs), rtol=1e-12, atol=1e-12)


def test_planes_in_float32_are_as_good_as_naive() -> None:
    single = make_scene(torch.float32)
    exact = reference(*(x.double() for x in single))
    assert float((planes(*single) - exact).abs().max()) < 3e-6
    assert float((make_vortex_field(lambda f: f)(*single) - exact).abs().max()) < 3e-6


def test_gradients_are_those_of_finite_differences() -> None:
    points, centers, charges = make_scene()
    radius = torch.tensor(0.6, dtype=torch.float64)
    inputs = [x.clone().requires_grad_() for x in (points[:3], centers, charges, radius)]
    assert torch.autograd.gradcheck(planes, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_is_finite_at_a_centre_and_on_a_line(dtype: torch.dtype) -> None:
    centers, charges = (x.to(dtype) for x in vortices((0.2, 0.1, 1.0), (-0.4, 0.3, -2.0)))
    points = torch.cat((centers, centers + torch.tensor([0.0, 0.0, 0.05], dtype=dtype)))
    points.requires_grad_()
    psi = planes(points, centers, charges)
    (gradient,) = torch.autograd.grad((psi.real + psi.imag).sum(), points)
    assert bool(torch.isfinite(gradient).all())


@settings(deadline=None, max_examples=20)
@given(
    n_points=st.integers(0, 3),
    n_vortices=st.integers(0, 3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_every_form_agrees_for_few_points_and_vortices(
    n_points: int, n_vortices: int, dtype: torch.dtype
) -> None:
    points, centers, charges = make_scene(dtype)
    inputs = points[:n_points], centers[:n_vortices], charges[:n_vortices]
    exact = vortex_field(*(x.double() for x in inputs))
    fields = [planes]
    if n_points <= 1 or n_vortices == 0:  # else it would compile
        fields.append(compute_vortex_field)
    for field in fields:
        psi = field(*inputs)
        assert psi.dtype == dtype.to_complex()
        torch.testing.assert_close(psi.to(exact.dtype), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({0: torch.zeros(4, 2)}, r"grid_points must have shape \[n, 3\], got \[4, 2\]"),
        ({0: torch.zeros(4, 3, dtype=torch.int64)}, r"grid_points must be real .* torch.int64"),
        ({1: torch.zeros(3)}, r"centers must have shape \[n, 3\], got \[3\]"),
        ({1: torch.zeros(3, 3)}, r"centers must have the dtype of grid_points, .*float64"),
        ({2: torch.zeros(2)}, r"charges must have shape \[3\], one per vortex, got \[2\]"),
        ({2: torch.zeros(3, dtype=torch.cdouble)}, r"charges must have the dtype .*complex128"),
        (
            {2: torch.zeros(3, dtype=torch.float64, device="meta")},
            r"charges must be on the device of grid_points, cpu, got meta",
        ),
        ({3: 0.0}, r"core_radius must be above 0, got 0.0"),
        ({3: math.nan}, r"core_radius must be finite, got nan"),
        ({3: torch.ones(1, dtype=torch.float64)}, r"core_radius must have no axes, got shape"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[int, Any], message: str) -> None:
    inputs = [*make_scene(), 0.1]
    for place, value in changed.items():
        inputs[place] = value
    with pytest.raises(ValueError, match=message):
        compute_vortex_field(*inputs)


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
def test_sizes_charges_and_core_radius_need_no_recompile() -> None:
    counters = torch._dynamo.utils.counters
    counters.clear()
    # Smallest first: three vortices must not be taken for the three coordinates.
    for n, size in enumerate(WORKLOAD.sizes.values()):
        drawn = make_inputs(size, torch.Generator().manual_seed(n))
        inputs = [x.float() for x in drawn]
        exact = reference(*(x.double() for x in inputs))
        # Twenty angles are added before their cosine is taken.
        assert float((compute_vortex_field(*inputs) - exact).abs().max()) < 2e-5
        other = [inputs[0], inputs[1], inputs[2] + 0.25, 0.1 + 0.1 * n]
        expected = planes(*(x.double() for x in other[:3]), other[3])
        assert float((compute_vortex_field(*other) - expected).abs().max()) < 2e-5
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


@pytest.mark.full
@needs_dynamo
def test_whole_charges_of_any_dtype_and_odd_strides_give_the_same() -> None:
    points, centers, charges = make_scene(torch.float32)
    expected = compute_vortex_field(points, centers, charges)
    odd = points.t().contiguous().t(), centers.repeat(1, 2)[:, :3], charges.to(torch.int32)
    before = [x.clone() for x in odd]
    torch.testing.assert_close(compute_vortex_field(*odd), expected)
    assert all(torch.equal(a, b) for a, b in zip(odd, before, strict=True))


@pytest.mark.full
@needs_dynamo
def test_compiled_gradient_is_that_of_eager() -> None:
    gradients = []
    for field in (vortex_field, compute_vortex_field):
        inputs = [x.clone().requires_grad_() for x in make_scene()]
        psi = field(*inputs)
        gradients.append(torch.autograd.grad((psi.real + 2.0 * psi.imag).sum(), inputs))
    for compiled, eager in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-9, atol=1e-9)


# --- whole charges -------------------------------------------------------------------------------


@given(
    charges=st.lists(st.integers(-3, 3), max_size=6),
    n=st.integers(0, 9),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@settings(max_examples=60, deadline=None)
def test_whole_charges_need_no_angle(
    charges: list[int], n: int, seed: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, 3, dtype=torch.float64, generator=generator).to(dtype)
    centers = torch.randn(len(charges), 3, dtype=torch.float64, generator=generator).to(dtype)
    inputs = centers, torch.tensor(charges, dtype=dtype)
    whole = torch.complex(*whole_vortex_planes(points.t().contiguous(), *inputs))
    exact = vortex_field(*(x.double() for x in (points, *inputs)))
    budget = 1e-4 if dtype == torch.float32 else 1e-12
    assert torch.allclose(whole.to(torch.complex128), exact, rtol=0.0, atol=budget)


def test_on_its_line_a_whole_charge_has_the_angle_zero() -> None:
    centers, charges = vortices((0.0, 0.0, 1.0), (0.0, 0.0, -2.0), (0.0, 0.0, 3.0))
    above = torch.tensor([[0.0, 0.0, 0.05]], dtype=torch.float64)
    whole = torch.complex(*whole_vortex_planes(above.t().contiguous(), centers, charges))
    assert torch.allclose(whole, torch.full((1,), math.tanh(0.5) ** 3, dtype=torch.complex128))
