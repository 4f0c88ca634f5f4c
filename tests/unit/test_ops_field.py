"""The field obeys the laws of superposed spherical waves, in both of its forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from benchmarks.field.field_superposition import WORKLOAD
from benchmarks.field.field_superposition.calls import in_rows, make_inputs, planes_of_rows
from benchmarks.field.field_superposition.reference import reference
from ivhl.measure.footprint import peak_bytes
from ivhl.ops.field import (
    compute_field_superposition,
    field_planes,
    field_superposition,
    make_field_superposition,
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

N_POINTS, N_SOURCES = 40, 7


def planes(*inputs: Any, **options: Any) -> torch.Tensor:  # noqa: ANN401
    return torch.complex(*field_planes(*inputs, **options))


forms = pytest.mark.parametrize("field", [field_superposition, planes], ids=["naive", "planes"])


def make_scene(seed: int = 0) -> dict[str, torch.Tensor]:
    """Draw points, sources and waves, float64."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    return {
        "grid_points": 4.0 * uniform(N_POINTS, 3) - 2.0,
        "sources": 2.0 * uniform(N_SOURCES, 3) - 1.0,
        "frequencies": 1.0 + uniform(N_SOURCES),
        "amplitudes": 0.5 + uniform(N_SOURCES),
        "phases": 2.0 * math.pi * uniform(N_SOURCES),
        "t": torch.tensor(0.3, dtype=torch.float64),
    }


def call(field: Field, scene: dict[str, torch.Tensor], **changed: Any) -> torch.Tensor:  # noqa: ANN401
    return field(*{**scene, **changed}.values())


def assert_same(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def make_waves(
    positions: list[list[float]], amplitudes: list[float], phases: list[float]
) -> tuple[torch.Tensor, ...]:
    n = len(positions)
    return (
        torch.tensor(positions, dtype=torch.float64),
        torch.ones(n, dtype=torch.float64),
        torch.tensor(amplitudes, dtype=torch.float64),
        torch.tensor(phases, dtype=torch.float64),
        torch.tensor(0.4, dtype=torch.float64),
    )


@forms
def test_one_source_has_the_intensity_of_a_spherical_wave(field: Field) -> None:
    points = torch.tensor([[0.0, 0.0, z] for z in (0.5, 1.0, 3.0)], dtype=torch.float64)
    psi = field(points, *make_waves([[0.0, 0.0, 0.0]], [1.7], [0.9]))
    assert_same(psi.abs() ** 2, 1.7**2 / points[:, 2] ** 2)


@forms
def test_no_point_is_nearer_than_the_least_distance(field: Field) -> None:
    points = torch.tensor([[0.0, 0.0, z] for z in (0.0, 0.05, 0.1)], dtype=torch.float64)
    psi = field(points, *make_waves([[0.0, 0.0, 0.0]], [1.0], [0.0]))
    assert_same(psi, psi[2].expand(3))
    assert_same(psi.abs(), torch.full((3,), 10.0, dtype=torch.float64))


@forms
def test_two_sources_make_the_fringes_of_their_path_difference(field: Field) -> None:
    points = torch.tensor([[x, 2.0, 0.3] for x in (-1.0, -0.2, 0.0, 0.7)], dtype=torch.float64)
    waves = make_waves([[-0.5, 0.0, 0.0], [0.5, 0.0, 0.0]], [1.0, 0.6], [0.2, 1.1])
    d1, d2 = (torch.linalg.vector_norm(points - s, dim=1) for s in waves[0])
    expected = 1.0 / d1**2 + 0.36 / d2**2 + 1.2 * torch.cos(d1 - d2 + 0.2 - 1.1) / (d1 * d2)
    assert_same(field(points, *waves).abs() ** 2, expected)


@forms
@settings(deadline=None)
@given(scale=st.floats(-10.0, 10.0, allow_subnormal=False), seed=st.integers(0, 100))
def test_field_is_linear_in_the_amplitudes(field: Field, scale: float, seed: int) -> None:
    scene, other = make_scene(seed), make_scene(seed + 1)["amplitudes"]
    together = call(field, scene, amplitudes=scene["amplitudes"] + scale * other)
    apart = call(field, scene) + scale * call(field, scene, amplitudes=other)
    assert_same(together, apart, 1e-11)


@forms
@settings(deadline=None)
@given(shift=st.lists(st.floats(-5.0, 5.0, allow_subnormal=False), min_size=3, max_size=3))
def test_field_moves_with_its_sources(field: Field, shift: list[float]) -> None:
    scene, by = make_scene(), torch.tensor(shift, dtype=torch.float64)
    moved = call(
        field, scene, grid_points=scene["grid_points"] + by, sources=scene["sources"] + by
    )
    assert_same(moved, call(field, scene), 1e-11)


@forms
def test_field_turns_with_its_sources(field: Field) -> None:
    scene = make_scene()
    generator = torch.Generator().manual_seed(1)
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))[0]
    turned = call(
        field,
        scene,
        grid_points=scene["grid_points"] @ rotation,
        sources=scene["sources"] @ rotation,
    )
    assert_same(turned, call(field, scene))


@forms
def test_field_of_one_frequency_repeats_after_its_period(field: Field) -> None:
    scene = make_scene()
    scene["frequencies"] = torch.full((N_SOURCES,), 1.3, dtype=torch.float64)
    later = scene["t"] + 2.0 * math.pi / 1.3
    assert_same(call(field, scene, t=later), call(field, scene))


@forms
def test_wave_number_stretches_the_phase(field: Field) -> None:
    points = torch.tensor([[0.0, 0.0, 0.75]], dtype=torch.float64)
    waves = make_waves([[0.0, 0.0, 0.0]], [1.0], [0.0])
    psi = field(points, *waves, 3.0)
    assert_same(psi.angle(), torch.tensor([3.0 * 0.75 + 0.4], dtype=torch.float64))


def test_both_forms_agree() -> None:
    scene = make_scene()
    assert_same(
        call(make_field_superposition(lambda f: f), scene), call(field_superposition, scene)
    )


def test_points_in_rows_have_the_same_planes() -> None:
    scene = tuple(make_scene().values())
    rows = in_rows(*scene)
    assert [list(x.shape) for x in rows[:2]] == [[3, N_POINTS], [3, N_SOURCES]]
    for plane, same in zip(planes_of_rows(*rows), field_planes(*scene), strict=True):
        assert_same(plane, same)


def test_planes_in_float32_stay_exact_far_from_the_origin() -> None:
    scene = {name: value.float() for name, value in make_scene().items()}
    scene["grid_points"] += 1000.0
    scene["sources"] += 1000.0
    psi = call(make_field_superposition(lambda f: f), scene)
    exact = reference(*(value.double() for value in scene.values()))
    assert float((psi - exact).abs().max()) < 1e-5 * float(exact.abs().max())


@forms
@pytest.mark.parametrize(
    ("regularization", "modulus"),
    [("clamp", (10.0, 2.0, 0.5)), ("shift", (20 / 3, 5 / 3, 10 / 21)), ("none", (20.0, 2.0, 0.5))],
)
def test_regularisations_change_the_distance(
    field: Field, regularization: str, modulus: tuple[float, ...]
) -> None:
    points = torch.tensor([[0.0, 0.0, z] for z in (0.05, 0.5, 2.0)], dtype=torch.float64)
    waves = make_waves([[0.0, 0.0, 0.0]], [1.0], [0.0])
    psi = field(points, *waves, regularization=regularization)
    assert_same(psi.abs(), torch.tensor(modulus, dtype=torch.float64))
    assert_same(psi.angle(), 1.0 / psi.abs() + 0.4)


@forms
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"grid_points": torch.zeros(4, 2)},
            r"grid_points must have shape \[n, 3\], got \[4, 2\]",
        ),
        ({"sources": torch.zeros(3)}, r"sources must have shape \[n, 3\], got \[3\]"),
        ({"phases": torch.zeros(2)}, r"phases must have shape \[7\], one per source, got \[2\]"),
        ({"t": torch.zeros(1)}, r"t must have no axes, got shape \[1\]"),
        ({"amplitudes": torch.ones(N_SOURCES)}, r"amplitudes .*float64, got torch.float32"),
        ({"grid_points": torch.zeros(4, 3, dtype=torch.int64)}, r"real floating .* torch.int64"),
    ],
)
def test_wrong_inputs_are_named(
    field: Field, changed: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call(field, make_scene(), **changed)


def test_the_public_function_takes_numbers_for_time_and_wave_number() -> None:
    scene = make_scene()
    scene["grid_points"] = scene["grid_points"][:1]
    numbers: dict[str, Any] = {**scene, "t": 0.3, "k": 2.0}
    assert_same(compute_field_superposition(**numbers), call(planes, scene, k=2.0))
    now = call(planes, scene, t=torch.zeros((), dtype=torch.float64))
    del numbers["t"], numbers["k"]
    assert_same(compute_field_superposition(**numbers), now)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"t": math.inf}, r"t must be finite, got inf"),
        ({"k": math.nan}, r"k must be finite, got nan"),
        ({"k": torch.ones(2, dtype=torch.float64)}, r"k must have no axes, got shape \[2\]"),
        ({"k": torch.tensor(1.0)}, r"k must have the dtype of grid_points, .* torch.float32"),
        ({"sources": torch.zeros(7, 3, device="meta")}, r"sources .* dtype of grid_points"),
        (
            {"sources": torch.zeros(7, 3, device="meta", dtype=torch.float64)},
            r"sources must be on the device of grid_points, cpu, got meta",
        ),
        ({"regularization": "soft"}, r"one of clamp, shift, none, got 'soft'"),
        (
            {"grid_points": torch.zeros(4, 3, dtype=torch.bfloat16)},
            r"float32 or float64, got torch.bfloat16",
        ),
    ],
)
def test_wrong_arguments_of_the_public_function_are_named(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compute_field_superposition(**{**make_scene(), **changed})


@pytest.mark.parametrize("regularization", ["clamp", "shift", "none"])
def test_gradients_are_those_of_finite_differences(regularization: str) -> None:
    scene = make_scene()
    inputs = [x[:3] if x.ndim else x for x in scene.values()]
    inputs.append(torch.tensor(1.3, dtype=torch.float64))
    inputs = [x.clone().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(lambda *i: planes(*i, regularization=regularization), inputs)


@pytest.mark.parametrize("regularization", ["clamp", "shift"])
def test_a_point_on_a_source_has_a_finite_gradient(regularization: str) -> None:
    points = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    psi = planes(points, *make_waves([[0.0] * 3], [1.0], [0.0]), regularization=regularization)
    (gradient,) = torch.autograd.grad(psi.abs().sum(), points)
    assert_same(gradient, torch.zeros(1, 3, dtype=torch.float64))


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


def cast(scene: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: value.to(dtype) for name, value in scene.items()}


def assert_close_to_reference(psi: torch.Tensor, *inputs: torch.Tensor) -> None:
    exact = reference(*(x.double() for x in inputs))
    assert float((psi - exact).abs().max()) < 1e-5 * float(exact.abs().max())


@needs_dynamo
def test_sizes_time_and_wave_number_need_no_recompile() -> None:
    counters = torch._dynamo.utils.counters
    counters.clear()
    for n, size in enumerate(WORKLOAD.sizes.values()):
        drawn = make_inputs(size, torch.Generator().manual_seed(n))
        inputs = [x.float() for x in drawn]
        assert_close_to_reference(compute_field_superposition(*inputs), *inputs)
        other: Any = (*inputs[:5], 0.1 * n, 1.0 + n)
        exact = planes(*(x.double() for x in inputs[:5]), torch.tensor(0.1 * n).double(), 1.0 + n)
        error = (compute_field_superposition(*other) - exact).abs().max()
        assert float(error) < 1e-5 * float(exact.abs().max())
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


@needs_dynamo
def test_no_array_of_all_pairs_is_made() -> None:
    size = WORKLOAD.sizes["extreme"]
    drawn = make_inputs(size, torch.Generator().manual_seed(0))
    inputs = [x.float() for x in drawn]
    psi = compute_field_superposition(*inputs)
    peak = peak_bytes(lambda: compute_field_superposition(*inputs), torch.device("cpu"))
    assert peak is not None
    # It holds two planes and the complex field made of them.
    assert psi.nbytes < peak <= 1.2 * (sum(x.nbytes for x in inputs) + psi.nbytes)


@needs_dynamo
def test_compiled_field_in_float32_stays_exact_far_from_the_origin() -> None:
    scene = cast(make_scene(), torch.float32)
    scene["grid_points"] += 1000.0
    scene["sources"] += 1000.0
    assert_close_to_reference(compute_field_superposition(**scene), *scene.values())


@needs_dynamo
def test_strides_do_not_matter_and_inputs_are_left_alone() -> None:
    scene = cast(make_scene(), torch.float32)
    odd = {name: torch.stack((x, x), dim=-1)[..., 0] if x.ndim else x for name, x in scene.items()}
    odd["sources"] = scene["sources"].t().contiguous().t()
    before = {name: x.clone() for name, x in odd.items()}
    torch.testing.assert_close(
        compute_field_superposition(**odd), compute_field_superposition(**scene)
    )
    assert all(torch.equal(odd[name], before[name]) for name in odd)


@settings(deadline=None, max_examples=20)
@given(
    n_points=st.integers(0, 3),
    n_sources=st.integers(0, 3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_every_form_agrees_for_few_points_and_sources(
    n_points: int, n_sources: int, dtype: torch.dtype
) -> None:
    scene = cast(make_scene(), dtype)
    scene["grid_points"] = scene["grid_points"][:n_points]
    for name in ("sources", "frequencies", "amplitudes", "phases"):
        scene[name] = scene[name][:n_sources]
    exact = call(field_superposition, cast(scene, torch.float64))
    forms = [planes]
    if n_points <= 1 or n_sources == 0:  # else it would compile
        forms.append(compute_field_superposition)
    for field in forms:
        psi = call(field, scene)
        assert psi.dtype == dtype.to_complex()
        torch.testing.assert_close(psi.to(exact.dtype), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.full
@needs_dynamo
def test_compiled_gradient_is_that_of_eager() -> None:
    gradients = []
    for field in (field_superposition, compute_field_superposition):
        inputs = [x.clone().requires_grad_() for x in make_scene().values()]
        psi = field(*inputs)
        weight = torch.linspace(-1.0, 1.0, len(psi), dtype=torch.float64)
        loss = (weight * psi.real + psi.imag.square()).sum()
        gradients.append(torch.autograd.grad(loss, inputs))
    for compiled, eager in zip(gradients[1], gradients[0], strict=True):
        assert_same(compiled, eager, 1e-10)
