"""The field obeys the laws of superposed spherical waves, in both of its forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.ops.field import _cos_sin_of_turns, field_superposition, make_field_superposition
from ivhl.workloads.field_superposition_reference import reference

if TYPE_CHECKING:
    from collections.abc import Callable

    Field = Callable[..., torch.Tensor]

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

# Below, no subnormal floats: code compiled by torch 2.5 switches them off for the whole process
# (-ffast-math), and Hypothesis then refuses to draw them.

N_POINTS, N_SOURCES = 40, 7

forms = pytest.mark.parametrize(
    "field",
    [field_superposition, make_field_superposition(lambda f: f)],
    ids=["naive", "planes"],
)


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


def test_planes_in_float32_stay_exact_far_from_the_origin() -> None:
    scene = {name: value.float() for name, value in make_scene().items()}
    scene["grid_points"] += 1000.0
    scene["sources"] += 1000.0
    psi = call(make_field_superposition(lambda f: f), scene)
    exact = reference(*(value.double() for value in scene.values()))
    assert float((psi - exact).abs().max()) < 1e-5 * float(exact.abs().max())


@settings(deadline=None)
@given(turns=st.floats(-1e4, 1e4, width=32, allow_subnormal=False))
def test_cosine_and_sine_of_turns_are_good_to_float32(turns: float) -> None:
    sign, cos, sin = _cos_sin_of_turns(torch.tensor(turns, dtype=torch.float32))
    angle = 2.0 * math.pi * math.fmod(turns, 1.0)
    assert float(sign * cos) == pytest.approx(math.cos(angle), abs=2e-7)
    assert float(sign * sin) == pytest.approx(math.sin(angle), abs=2e-7)


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
