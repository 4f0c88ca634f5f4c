"""A batch agrees with its molecules one by one, and padding has no effect."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from benchmarks.molecules.energy_forces import literal
from benchmarks.molecules.energy_forces.calls import MOLECULES
from ivhl.mlff import painn
from ivhl.mlff.batch import (
    BUCKETS,
    batch_energies,
    batch_energies_forces,
    batch_energies_forces_one_graph,
    bucket_of,
    group_by_bucket,
    pad_molecules,
)
from ivhl.mlff.parameters import cast_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    Model = Callable[..., tuple[torch.Tensor, torch.Tensor]]
    Molecule = tuple[torch.Tensor, torch.Tensor]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    # PyTorch 2.5.1 while it compiles
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
]

TOLERANCE = 1e-12

models = pytest.mark.parametrize(
    "model",
    [batch_energies_forces, batch_energies_forces_one_graph],
    ids=["autograd", "one-graph"],
)


@cache
def parameters() -> dict[str, Any]:
    return painn.make_parameters(torch.Generator().manual_seed(0))


def make_molecule(name: str, *, seed: int = 1) -> Molecule:
    """Return atomic numbers and shaken positions in Å, float64."""
    atoms = MOLECULES[name]
    positions = torch.tensor([a[1:] for a in atoms], dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(positions.shape, dtype=torch.float64, generator=generator)
    return torch.tensor([a[0] for a in atoms]), positions + 0.1 * noise


def assert_near(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert actual.shape == expected.shape
    assert float((actual - expected).abs().max()) <= tolerance


def mixed_batch() -> tuple[list[Molecule], torch.Tensor, torch.Tensor]:
    molecules = [make_molecule(name) for name in ("H2O", "C6H6", "CH4")]
    return molecules, *pad_molecules(molecules)


@models
def test_a_batch_is_its_molecules_one_by_one(model: Model) -> None:
    molecules, numbers, positions = mixed_batch()
    energies, forces = model(parameters(), numbers, positions)
    assert not energies.requires_grad
    assert not forces.requires_grad
    for place, (one_numbers, one_positions) in enumerate(molecules):
        energy, one_forces = literal.energy_forces(parameters(), one_numbers, one_positions)
        assert_near(energies[place], energy, TOLERANCE)
        assert_near(forces[place, : len(one_numbers)], one_forces, TOLERANCE)
        assert bool((forces[place, len(one_numbers) :] == 0.0).all())


@models
@pytest.mark.parametrize(
    ("dtype", "roundoff"), [(torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8)]
)
def test_a_short_precision_is_short_and_finite_among_pads(
    model: Model, dtype: torch.dtype, roundoff: float
) -> None:
    # A pad has no vectors at all: the derivative of their norm was 0/0 in float16.
    _, numbers, positions = mixed_batch()
    energies, forces = model(parameters(), numbers, positions)
    short = cast_parameters(parameters(), dtype=dtype, device="cpu")
    actual, actual_forces = model(short, numbers, positions.to(dtype))
    assert actual.dtype == actual_forces.dtype == dtype
    for energy, expected in zip(actual.double(), energies, strict=True):
        assert abs(float(energy - expected)) <= 64 * roundoff * max(1.0, abs(float(expected)))
    assert_near(actual_forces.double(), forces, 64 * roundoff * float(forces.abs().max()))


@models
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10_000), bad=st.sampled_from([0.0, 1e6, float("nan"), float("inf")]))
def test_what_stands_where_no_atom_is_does_not_matter(model: Model, seed: int, bad: float) -> None:
    _, numbers, positions = mixed_batch()
    energies, forces = model(parameters(), numbers, positions)
    generator = torch.Generator().manual_seed(seed)
    other = torch.randn(positions.shape, dtype=torch.float64, generator=generator) + bad
    other_weights = {**parameters(), "embedding": parameters()["embedding"].clone()}
    other_weights["embedding"][0] = torch.randn(128, dtype=torch.float64) + bad
    moved = torch.where((numbers != 0)[..., None], positions, other)
    other_energies, other_forces = model(other_weights, numbers, moved)
    assert torch.equal(other_energies, energies)
    assert torch.equal(other_forces, forces)


@models
@settings(deadline=None, max_examples=8)
@given(order=st.permutations(range(12)))
def test_pads_may_stand_anywhere(model: Model, order: list[int]) -> None:
    _, numbers, positions = mixed_batch()
    energies, forces = model(parameters(), numbers, positions)
    other_energies, other_forces = model(parameters(), numbers[:, order], positions[:, order])
    assert_near(other_energies, energies, TOLERANCE)
    assert_near(other_forces, forces[:, order], TOLERANCE)


@models
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["rotation", "reflection"])
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_energy_is_invariant_and_forces_turn_along(model: Model, sign: float, seed: int) -> None:
    _, numbers, positions = mixed_batch()
    energies, forces = model(parameters(), numbers, positions)
    generator = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))[0]
    q = q * sign * torch.linalg.det(q).sign()
    # Each molecule moves by itself
    shift = torch.randn(3, 1, 3, dtype=torch.float64, generator=generator)
    other_energies, other_forces = model(parameters(), numbers, positions @ q + shift)
    assert_near(other_energies, energies, TOLERANCE)
    assert_near(other_forces, forces @ q, TOLERANCE)


@models
def test_energy_and_forces_vanish_smoothly_at_the_cutoff(model: Model) -> None:
    distances = painn.CUTOFF + torch.tensor([1e-6, -1e-6, -1e-3], dtype=torch.float64)
    positions = torch.zeros(3, 2, 3, dtype=torch.float64)
    positions[:, 1, 2] = distances
    energies, forces = model(parameters(), torch.tensor([[6, 8]]).repeat(3, 1), positions)
    assert float(forces[0].abs().max()) == 0.0
    assert_near(energies[1], energies[0], 1e-10)
    assert_near(forces[1], forces[0], 1e-4)
    assert_near(energies[2], energies[0], 1e-4)


@models
def test_a_row_without_atoms_is_zero(model: Model) -> None:
    numbers, positions = make_molecule("H2O")
    two = torch.stack((numbers, torch.zeros_like(numbers)))
    energies, forces = model(parameters(), two, torch.stack((positions, positions)))
    assert float(energies[1]) == 0.0
    assert bool((forces[1] == 0.0).all())
    assert float(forces[0].abs().max()) > 0.01


@models
def test_an_atom_at_the_origin_is_not_a_neighbour_of_pads(model: Model) -> None:
    numbers, positions = pad_molecules(
        [(torch.tensor([8]), torch.zeros(1, 3, dtype=torch.float64))], n_atoms=4
    )
    energy = literal.energy(
        parameters(), torch.tensor([8]), torch.zeros(1, 3, dtype=torch.float64)
    )
    energies, forces = model(parameters(), numbers, positions)
    assert_near(energies[0], energy, TOLERANCE)
    assert bool((forces == 0.0).all())


@models
def test_forces_are_the_gradient(model: Model) -> None:
    _, numbers, positions = mixed_batch()
    forces = model(parameters(), numbers, positions)[1]
    generator = torch.Generator().manual_seed(3)
    along = torch.randn(positions.shape, dtype=torch.float64, generator=generator)
    along = torch.where((numbers != 0)[..., None], along, torch.zeros_like(along))
    along = along / along.square().sum(dim=(1, 2), keepdim=True).sqrt()
    step = 1e-4
    e1, e2 = (
        batch_energies(parameters(), numbers, positions + m * step * along)
        - batch_energies(parameters(), numbers, positions - m * step * along)
        for m in (1, 2)
    )
    slope = (8.0 * e1 - e2) / (12.0 * step)
    assert_near(-(forces * along).sum(dim=(1, 2)), slope, 1e-8)


def loss_of(model: Model, weights: dict[str, Any], **more: bool) -> torch.Tensor:
    _, numbers, positions = mixed_batch()
    energies, forces = model(weights, numbers, positions, **more)
    return energies.square().sum() + forces.square().sum()


@pytest.mark.parametrize("field", ["embedding", "readout_w2"])
def test_training_on_forces_has_the_right_gradient(field: str) -> None:
    weights = {**parameters(), field: parameters()[field].clone().requires_grad_()}
    loss = loss_of(batch_energies_forces, weights, create_graph=True)
    (gradient,) = torch.autograd.grad(loss, weights[field])
    assert bool(torch.isfinite(gradient).all())
    if field == "embedding":
        assert bool((gradient[0] == 0.0).all())
    one_graph = loss_of(batch_energies_forces_one_graph, weights)
    (other_gradient,) = torch.autograd.grad(one_graph, weights[field])
    assert_near(other_gradient, gradient, 1e-9)
    generator = torch.Generator().manual_seed(5)
    along = torch.randn(gradient.shape, dtype=torch.float64, generator=generator)
    step = 1e-5

    def at(shift: float) -> float:
        moved = {**parameters(), field: parameters()[field] + shift * along}
        return float(loss_of(batch_energies_forces, moved))

    slope = (8.0 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12.0 * step)
    assert float((gradient * along).sum()) == pytest.approx(slope, rel=1e-7)


@pytest.mark.full  # a minute of the C++ compiler
def test_the_one_graph_form_compiles_whole() -> None:
    torch.compiler.reset()
    _, numbers, positions = mixed_batch()
    expected = batch_energies_forces(parameters(), numbers, positions)
    compiled = torch.compile(batch_energies_forces_one_graph, fullgraph=True, dynamic=False)
    energies, forces = compiled(parameters(), numbers, positions)
    assert_near(energies, expected[0], TOLERANCE)
    assert_near(forces, expected[1], TOLERANCE)


@given(n_atoms=st.integers(1, BUCKETS[-1]))
def test_a_bucket_is_the_least_that_fits(n_atoms: int) -> None:
    bucket = bucket_of(n_atoms)
    assert bucket in BUCKETS
    assert bucket >= n_atoms
    assert not [b for b in BUCKETS if n_atoms <= b < bucket]


@given(counts=st.lists(st.integers(1, BUCKETS[-1])))
def test_every_molecule_is_in_one_group(counts: list[int]) -> None:
    groups = group_by_bucket(counts)
    assert sorted(place for places in groups.values() for place in places) == list(
        range(len(counts))
    )
    assert list(groups) == sorted(groups)
    for bucket, places in groups.items():
        assert {bucket_of(counts[place]) for place in places} == {bucket}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bucket_of(0), "n_atoms must be at least 1, got 0"),
        (lambda: bucket_of(65), "at most 64, the largest bucket, got 65; larger systems"),
        (lambda: pad_molecules([]), "molecules must hold at least one, got none"),
        (
            lambda: pad_molecules([(torch.tensor([1]), torch.zeros(1, 3))] * 2, n_atoms=0),
            "n_atoms must be at least 1, the longest molecule, got 0",
        ),
        (
            lambda: pad_molecules(
                [
                    (torch.tensor([1]), torch.zeros(1, 3)),
                    (torch.tensor([1, 101]), torch.zeros(2, 3)),
                ]
            ),
            r"molecules\[1\]\.atoms\[1\]: atomic number must be in \[1, 100\], got 101",
        ),
        (
            lambda: pad_molecules([(torch.tensor([0]), torch.zeros(1, 3))]),
            r"molecules\[0\]\.atoms\[0\]: atomic number must be in \[1, 100\], got 0",
        ),
        (
            lambda: pad_molecules([(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 3))]),
            r"molecules\[0\]: positions must hold at least one atom, got none",
        ),
        (
            lambda: pad_molecules([(torch.tensor([1.0]), torch.zeros(1, 3))]),
            r"molecules\[0\]: atomic_numbers must be int64, got torch.float32",
        ),
        (
            lambda: pad_molecules([(torch.tensor([1]), torch.zeros(2, 3))]),
            r"molecules\[0\]: atomic_numbers must have shape \[2\], one per position, got \[1\]",
        ),
        (
            lambda: pad_molecules(
                [
                    (torch.tensor([1]), torch.zeros(1, 3)),
                    (torch.tensor([1]), torch.zeros(1, 3, dtype=torch.float64)),
                ]
            ),
            r"molecules\[1\]: positions must be torch.float32 as the first, got torch.float64",
        ),
    ],
)
def test_molecules_that_cannot_be_padded_are_named(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@models
@pytest.mark.parametrize(
    ("numbers", "positions", "message"),
    [
        (torch.ones(1, 2, dtype=torch.int64), torch.zeros(2, 3), r"positions .* got \[2, 3\]"),
        (torch.ones(1, 2, dtype=torch.int64), torch.zeros(1, 2, 2), r"positions .* \[1, 2, 2\]"),
        (torch.ones(2, dtype=torch.int64), torch.zeros(1, 2, 3), r"numbers .* \[1, 2\].* \[2\]"),
        (torch.ones(1, 2), torch.zeros(1, 2, 3), "atomic_numbers must be int64, got"),
        (
            torch.ones(1, 2, dtype=torch.int64),
            torch.ones(1, 2, 3).long(),
            "positions must be real",
        ),
    ],
)
def test_wrong_inputs_are_named(
    model: Model, numbers: torch.Tensor, positions: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model(parameters(), numbers, positions)
