"""Energy and forces of one molecule have the symmetries of space and of atoms, in every form."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from benchmarks.molecules.energy_forces.calls import MOLECULES
from benchmarks.molecules.energy_forces.literal import energy_forces, make_energy_forces
from benchmarks.molecules.energy_forces.one_graph import (
    energy_forces_in_sums,
    energy_forces_one_graph,
)
from ivhl.mlff import batch
from ivhl.mlff.painn import CUTOFF, make_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    Model = Callable[..., tuple[torch.Tensor, torch.Tensor]]

# torch.func issues the last two once per process, in whichever test uses it first.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
]

TOLERANCE = 1e-12

models = pytest.mark.parametrize(
    "model",
    [
        batch.energy_forces,
        energy_forces,
        make_energy_forces(lambda f: f),
        energy_forces_one_graph,
        energy_forces_in_sums,
    ],
    ids=["public", "naive", "parts", "one-graph", "in-sums"],
)


@cache
def parameters() -> dict[str, Any]:
    return make_parameters(torch.Generator().manual_seed(0))


def make_molecule(name: str, *, shake: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return atomic numbers and shaken positions in Å, float64."""
    atoms = MOLECULES[name]
    positions = torch.tensor([a[1:] for a in atoms], dtype=torch.float64)
    noise = torch.randn(
        positions.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    return torch.tensor([a[0] for a in atoms]), positions + shake * noise


def rotation_of(seed: int, *, sign: float) -> torch.Tensor:
    """Return a random orthogonal matrix with this determinant."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))[0]
    return q * sign * torch.linalg.det(q).sign()


def assert_near(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert float((actual - expected).abs().max()) <= tolerance


def test_model_has_the_size_of_the_paper() -> None:
    def count(node: Any) -> int:  # noqa: ANN401  (a nest of tensors)
        if isinstance(node, torch.Tensor):
            return int(node.numel())
        return sum(count(child) for child in (node.values() if isinstance(node, dict) else node))

    # 589,057 in schnetpack 2.2, which shares nothing but has one row less of embedding
    assert count(parameters()) == 589_185


@models
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["rotation", "reflection"])
@settings(deadline=None, max_examples=25)  # the first call of torch.func imports for seconds
@given(seed=st.integers(0, 10_000))
def test_energy_is_invariant_and_forces_turn_along(model: Model, sign: float, seed: int) -> None:
    numbers, positions = make_molecule("H2O")
    q = rotation_of(seed, sign=sign)
    energy, forces = model(parameters(), numbers, positions)
    turned_energy, turned_forces = model(parameters(), numbers, positions @ q)
    assert_near(turned_energy, energy, TOLERANCE)
    assert_near(turned_forces, forces @ q, TOLERANCE)


@models
@settings(deadline=None, max_examples=25)
@given(order=st.permutations(range(5)))
def test_order_of_the_atoms_does_not_matter(model: Model, order: list[int]) -> None:
    numbers, positions = make_molecule("CH4")
    energy, forces = model(parameters(), numbers, positions)
    other_energy, other_forces = model(parameters(), numbers[order], positions[order])
    assert_near(other_energy, energy, TOLERANCE)
    assert_near(other_forces, forces[order], TOLERANCE)


@models
def test_place_of_the_molecule_does_not_matter(model: Model) -> None:
    numbers, positions = make_molecule("C6H6")
    energy, forces = model(parameters(), numbers, positions)
    shift = torch.tensor([3.0, -2.0, 1.0], dtype=torch.float64)
    other_energy, other_forces = model(parameters(), numbers, positions + shift)
    assert_near(other_energy, energy, TOLERANCE)
    assert_near(other_forces, forces, TOLERANCE)
    assert_near(forces.sum(dim=0), torch.zeros(3, dtype=torch.float64), TOLERANCE)


@models
def test_forces_are_the_gradient(model: Model) -> None:
    numbers, positions = make_molecule("H2O")
    step = 1e-4
    expected = torch.zeros_like(positions)
    for i in range(3):
        for axis in range(3):
            shift = torch.zeros_like(positions)
            shift[i, axis] = step
            # Fourth order, so that rounding and curvature both stay below 1e-8.
            e1, e2 = (
                model(parameters(), numbers, positions + m * shift)[0]
                - model(parameters(), numbers, positions - m * shift)[0]
                for m in (1, 2)
            )
            expected[i, axis] = -(8.0 * e1 - e2) / (12.0 * step)
    forces = model(parameters(), numbers, positions)[1]
    assert float(forces.abs().max()) > 0.01
    assert_near(forces, expected, 1e-8)


@models
@pytest.mark.parametrize("pair", [(1, 1), (8, 8), (6, 8)])
def test_energy_and_forces_vanish_smoothly_at_the_cutoff(
    model: Model, pair: tuple[int, int]
) -> None:
    def at(distance: float) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, distance]], dtype=torch.float64)
        return model(parameters(), torch.tensor(pair), positions)

    apart, none = at(CUTOFF + 1e-6)
    energy, forces = at(CUTOFF - 1e-6)
    assert float(none.abs().max()) == 0.0
    assert_near(energy, apart, 1e-10)
    assert_near(forces, none, 1e-4)
    assert_near(at(CUTOFF - 1e-3)[0], apart, 1e-4)


@models
def test_symmetric_methane_has_finite_symmetric_forces(model: Model) -> None:
    numbers, positions = make_molecule("CH4", shake=0.0)
    forces = model(parameters(), numbers, positions)[1]
    assert bool(torch.isfinite(forces).all())
    assert_near(forces[0], torch.zeros(3, dtype=torch.float64), TOLERANCE)
    along = (forces[1:] * positions[1:]).sum(dim=1) / positions[1].norm()
    assert_near(along, along[0].expand(4), TOLERANCE)
    assert_near(forces[1:].norm(dim=1), along.abs(), TOLERANCE)


@models
def test_one_atom_feels_nothing(model: Model) -> None:
    forces = model(parameters(), torch.tensor([6]), torch.zeros(1, 3, dtype=torch.float64))[1]
    assert float(forces.abs().max()) == 0.0


@models
def test_forms_agree(model: Model) -> None:
    numbers, positions = make_molecule("C6H6")
    energy, forces = model(parameters(), numbers, positions)
    expected_energy, expected_forces = energy_forces(parameters(), numbers, positions)
    assert_near(energy, expected_energy, TOLERANCE)
    assert_near(forces, expected_forces, TOLERANCE)
    assert not energy.requires_grad
    assert not forces.requires_grad


@models
@pytest.mark.parametrize(
    ("numbers", "positions", "message"),
    [
        ([6], torch.zeros(1, 2), r"positions must have shape \[n_atoms, 3\], got \[1, 2\]"),
        ([6], torch.zeros(3), r"positions must have shape \[n_atoms, 3\], got \[3\]"),
        ([6, 1], torch.zeros(1, 3), r"atomic_numbers .* \[1\], one per position, got \[2\]"),
        ([], torch.zeros(0, 3), "positions must hold at least one atom, got none"),
        ([6.0], torch.zeros(1, 3), r"atomic_numbers must be int64, got torch.float32"),
        ([6], torch.zeros(1, 3, dtype=torch.int64), r"positions .* got torch.int64"),
    ],
)
def test_wrong_inputs_are_named(
    model: Model, numbers: list[float], positions: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model(parameters(), torch.tensor(numbers), positions)


@models
@pytest.mark.parametrize(
    ("dtype", "roundoff"), [(torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8)]
)
@pytest.mark.parametrize("name", ["H2", "C6H6"])
def test_a_short_precision_gives_short_but_finite_answers(
    model: Model, dtype: torch.dtype, roundoff: float, name: str
) -> None:
    numbers, positions = make_molecule(name, shake=0.05)
    energy, forces = energy_forces(parameters(), numbers, positions)
    actual, actual_forces = model(in_precision(parameters(), dtype), numbers, positions.to(dtype))
    assert actual.dtype == actual_forces.dtype == dtype
    assert abs(float(actual - energy)) <= 64 * roundoff * max(1.0, abs(float(energy)))
    assert_near(actual_forces.double(), forces, 64 * roundoff)  # of 1 eV/Å


@models
def test_vectors_without_a_square_in_float16_have_a_derivative(model: Model) -> None:
    # The square of what is below 2e-4 is zero there, and so is NORM_EPS: forces of H2 were NaN.
    weights = parameters()
    weights = weights | {"layers": [p | {"mix_v": 1e-5 * p["mix_v"]} for p in weights["layers"]]}
    numbers, positions = make_molecule("H2")
    forces = model(in_precision(weights, torch.float16), numbers, positions.half())[1]
    assert bool(torch.isfinite(forces).all())


def in_precision(node: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401  (a nest of tensors)
    if isinstance(node, torch.Tensor):
        return node.to(dtype)
    if isinstance(node, dict):
        return {name: in_precision(child, dtype) for name, child in node.items()}
    return [in_precision(child, dtype) for child in node]
