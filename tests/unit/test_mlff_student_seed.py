"""The original student and each of its defects, with random weights."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from benchmarks.molecules.energy_forces.calls import MOLECULES
from ivhl.mlff import batch, painn
from studies.founding.student_seed import (
    CUTOFF,
    LAYER_NAMES,
    N_RADIAL,
    READOUT_NAMES,
    energy,
    energy_all_pairs,
    energy_forces,
    load_original,
    make_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

TOLERANCE = 1e-12
PAIRS = [[1, 1], [8, 8], [6, 8], [6, 6]]
ROTATIONS = range(20)


@cache
def parameters() -> dict[str, Any]:
    return make_parameters(torch.Generator().manual_seed(0))


@cache
def isotropic() -> dict[str, Any]:
    """Return the weights with multiples of the identity as mixing matrices."""
    one = torch.eye(3, dtype=torch.float64)
    layers = [p | {"mixing": p["mixing"].diagonal().mean() * one} for p in parameters()["layers"]]
    return parameters() | {"layers": layers}


def make_molecule(name: str, *, shake: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return atomic numbers and randomly displaced positions in Å, float64."""
    atoms = MOLECULES[name]
    positions = torch.tensor([a[1:] for a in atoms], dtype=torch.float64)
    noise = torch.randn(
        positions.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    return torch.tensor([a[0] for a in atoms]), positions + shake * noise


def rotation_of(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))[0]
    return q * torch.linalg.det(q).sign()


def largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max())


def errors_of_turning(weights: dict[str, Any], name: str, *, shake: float) -> tuple[float, float]:
    """Return how much a rotation changes energy in eV and rotated-back forces in eV/Å."""
    numbers, positions = make_molecule(name, shake=shake)
    at_rest, forces = energy_forces(weights, numbers, positions)
    worst_energy = worst_force = 0.0
    for seed in ROTATIONS:
        q = rotation_of(seed)
        turned_energy, turned_forces = energy_forces(weights, numbers, positions @ q)
        worst_energy = max(worst_energy, largest(turned_energy - at_rest))
        worst_force = max(worst_force, largest(turned_forces - forces @ q))
    return worst_energy, worst_force


def original_state(weights: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return weights with the names and axes of the original."""

    def as_stored(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.T if name.endswith(".weight") else tensor

    state = {
        "embedding.weight": weights["embedding"],
        "rbf.centers": torch.linspace(0.0, CUTOFF, N_RADIAL),
        "rbf.widths": torch.full((N_RADIAL,), 0.25),
    }
    state |= {theirs: as_stored(theirs, weights[ours]) for ours, theirs in READOUT_NAMES.items()}
    for n, layer in enumerate(weights["layers"]):
        for ours, theirs in LAYER_NAMES.items():
            state[f"interactions.{n}.{theirs}"] = as_stored(theirs, layer[ours])
    return state


def numbers_in(node: Any) -> int:  # noqa: ANN401  (a nest of tensors)
    if isinstance(node, torch.Tensor):
        return int(node.numel())
    children = node.values() if isinstance(node, dict) else node
    return sum(numbers_in(child) for child in children)


def test_the_student_has_as_many_weights_as_the_original() -> None:
    assert numbers_in(parameters()) == 427_292


@settings(deadline=None)
@given(order=st.permutations(range(5)), shift=st.tuples(*[st.floats(-10.0, 10.0)] * 3))
def test_permutations_and_translations_change_neither_energy_nor_forces(
    order: list[int], shift: tuple[float, float, float]
) -> None:
    numbers, positions = make_molecule("CH4")
    expected_energy, expected_forces = energy_forces(parameters(), numbers, positions)
    moved = positions[order] + torch.tensor(shift, dtype=torch.float64)
    other_energy, other_forces = energy_forces(parameters(), numbers[order], moved)
    assert largest(other_energy - expected_energy) <= TOLERANCE
    assert largest(other_forces - expected_forces[order]) <= TOLERANCE


def test_forces_are_minus_the_gradient() -> None:
    numbers, positions = make_molecule("H2O")
    forces = energy_forces(parameters(), numbers, positions)[1]
    step = 1e-4
    for i in range(3):
        for axis in range(3):
            shift = torch.zeros_like(positions)
            shift[i, axis] = step
            e1, e2 = (
                energy(parameters(), numbers, positions + m * shift)
                - energy(parameters(), numbers, positions - m * shift)
                for m in (1, 2)
            )
            assert abs(float(forces[i, axis] + (8.0 * e1 - e2) / (12.0 * step))) <= 1e-8
    assert largest(forces) > 0.1


@pytest.mark.parametrize("name", MOLECULES)
def test_all_pairs_give_the_energy_of_the_edge_list(name: str) -> None:
    numbers, positions = make_molecule(name)
    # A second molecule partly beyond the cutoff, so that some pairs are masked.
    numbers = torch.cat((numbers, numbers))
    positions = torch.cat((positions, positions + torch.tensor([4.5, 0.0, 0.0])))
    distances = torch.cdist(positions, positions)
    assert bool((distances > CUTOFF).any())
    difference = energy_all_pairs(parameters(), numbers, positions) - energy(
        parameters(), numbers, positions
    )
    assert largest(difference) <= TOLERANCE


@pytest.mark.parametrize("model", [energy, energy_all_pairs])
def test_a_single_atom_has_no_force(model: Callable[..., torch.Tensor]) -> None:
    number, origin = torch.tensor([6]), torch.zeros(1, 3, dtype=torch.float64)
    alone, forces = energy_forces(parameters(), number, origin)
    assert largest(forces) == 0.0
    assert float(alone) == float(model(parameters(), number, origin + 1.0))


@pytest.mark.parametrize("name", MOLECULES)
def test_defect_energy_and_forces_depend_on_the_orientation(name: str) -> None:
    energy_error, force_error = errors_of_turning(parameters(), name, shake=0.1)
    assert energy_error > 0.01
    assert force_error > 0.1


@pytest.mark.parametrize("name", MOLECULES)
def test_a_multiple_of_the_identity_makes_it_invariant(name: str) -> None:
    energy_error, force_error = errors_of_turning(isotropic(), name, shake=0.1)
    assert energy_error <= TOLERANCE
    assert force_error <= TOLERANCE


def test_defect_rounding_decides_forces_on_symmetric_methane() -> None:
    energy_error, force_error = errors_of_turning(isotropic(), "CH4", shake=0.0)
    assert energy_error <= TOLERANCE
    assert force_error > 0.05
    numbers, positions = make_molecule("CH4", shake=0.0)
    on_carbon = [
        largest(energy_forces(isotropic(), numbers, positions @ rotation_of(seed))[1][0])
        for seed in ROTATIONS
    ]
    assert max(on_carbon) > 0.05  # zero by symmetry


def jump(model: Callable[..., torch.Tensor], weights: dict[str, Any], pair: list[int]) -> float:
    """Return the change of the energy in eV within 2e-6 Å around the cutoff."""
    inside, outside = (
        model(
            weights,
            torch.tensor(pair),
            torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, d]], dtype=torch.float64),
        )
        for d in (CUTOFF - 1e-6, CUTOFF + 1e-6)
    )
    return abs(float(inside - outside))


@pytest.mark.parametrize("pair", PAIRS)
def test_defect_energy_jumps_at_the_cutoff_unlike_that_of_painn(pair: list[int]) -> None:
    assert jump(energy, parameters(), pair) > 0.01
    smooth = painn.make_parameters(torch.Generator().manual_seed(0))
    assert jump(lambda *inputs: batch.energy_forces(*inputs)[0], smooth, pair) < 1e-9


@pytest.mark.parametrize("model", [energy, energy_all_pairs])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_jump_comes_from_the_biases(
    model: Callable[..., torch.Tensor], pair: list[int]
) -> None:
    none = {"filter_b1": torch.zeros(128).double(), "filter_b2": torch.zeros(384).double()}
    without = parameters() | {"layers": [p | none for p in parameters()["layers"]]}
    assert jump(model, without, pair) < 1e-9


def test_weights_of_the_original_are_loaded() -> None:
    loaded = load_original(original_state(parameters()))
    assert numbers_in(loaded) == 427_292
    numbers, positions = make_molecule("H2O")
    assert float(energy(loaded, numbers, positions)) == float(
        energy(parameters(), numbers, positions)
    )


def test_the_last_mixing_matrix_may_be_missing() -> None:
    state = original_state(parameters())
    del state["interactions.2.update.mixing_matrix"]
    numbers, positions = make_molecule("H2O")
    assert float(energy(load_original(state), numbers, positions)) == float(
        energy(parameters(), numbers, positions)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"energy_head.4.bias": None}, "'energy_head.4.bias', which is missing"),
        ({"interactions.0.update.mixing_matrix": None}, "'interactions.0.* is missing"),
        ({"energy_head.6.bias": torch.zeros(1)}, "nothing else, got energy_head.6.bias"),
        (
            {"embedding.weight": torch.zeros(119, 128)},
            r"'embedding.weight' must become \[101, 128\] here, got \[119, 128\]",
        ),
        ({"rbf.widths": torch.full((N_RADIAL,), 0.5)}, "'rbf.widths' must be that of 20"),
    ],
)
def test_weights_of_another_model_are_refused(
    change: dict[str, torch.Tensor | None], message: str
) -> None:
    state = {
        name: tensor
        for name, tensor in (original_state(parameters()) | change).items()
        if tensor is not None
    }
    with pytest.raises(ValueError, match=message):
        load_original(state)


@pytest.mark.parametrize(
    ("numbers", "positions", "message"),
    [
        ([6], torch.zeros(1, 2), r"positions must have shape \[n_atoms, 3\], got \[1, 2\]"),
        ([], torch.zeros(0, 3), "positions must hold at least one atom, got none"),
        ([6, 1], torch.zeros(1, 3), r"atomic_numbers .* \[1\], one per position, got \[2\]"),
        ([6.0], torch.zeros(1, 3), r"atomic_numbers must be int64, got torch.float32"),
        ([6], torch.zeros(1, 3, dtype=torch.int64), r"positions .* got torch.int64"),
        ([6, 101], torch.zeros(2, 3), r"in \[1, 100\], got 101 for atom 1"),
        ([0], torch.zeros(1, 3), r"in \[1, 100\], got 0 for atom 0"),
    ],
)
def test_wrong_inputs_are_named(
    numbers: list[float], positions: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        energy_forces(parameters(), torch.tensor(numbers), positions)
