"""The list of edges agrees with the dense square, and is right for periodic cells."""

from __future__ import annotations

import itertools
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
from ivhl.mlff.edges import (
    edge_energies,
    edge_energies_forces,
    edge_energies_forces_one_graph,
    join_molecules,
    pad_edges,
    stress_of,
)
from ivhl.mlff.painn import CUTOFF
from ivhl.mlff.parameters import cast_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    Model = Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    Molecule = tuple[torch.Tensor, torch.Tensor]
    System = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

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
    [edge_energies_forces, edge_energies_forces_one_graph],
    ids=["autograd", "one-graph"],
)


@cache
def parameters() -> dict[str, Any]:
    return painn.make_parameters(torch.Generator().manual_seed(0))


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make_molecule(name: str) -> Molecule:
    """Return atomic numbers and shaken positions in Å, float64."""
    atoms = MOLECULES[name]
    positions = torch.tensor([a[1:] for a in atoms], dtype=torch.float64)
    return torch.tensor([a[0] for a in atoms]), positions + 0.1 * random(*positions.shape, seed=1)


def make_crystal() -> System:
    """Return numbers, positions and a skewed cell smaller than the cutoff, all in Å."""
    cell = torch.tensor([[3.9, 0.0, 0.0], [0.7, 4.3, 0.0], [-0.4, 0.6, 4.6]]).double()
    inside = torch.tensor([[0.1, 0.1, 0.1], [0.4, 0.5, 0.2], [0.7, 0.2, 0.6], [0.3, 0.8, 0.7]])
    return torch.tensor([6, 8, 1, 7]), inside.double() @ cell, cell


def list_edges(positions: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all edges below the cutoff, by trying every image that could be near enough."""
    heights = 1.0 / torch.linalg.inv(cell).norm(dim=0)
    wide = (positions @ torch.linalg.inv(cell)).floor().abs().max()
    reach = [int(CUTOFF / float(h)) + 2 + 2 * int(wide) for h in heights]
    edges, shifts = [], []
    for offset in itertools.product(*(range(-n, n + 1) for n in reach)):
        shift = torch.tensor(offset, dtype=torch.float64) @ cell
        d = (positions[None, :, :] - positions[:, None, :] + shift).norm(dim=-1)
        near = ((d < CUTOFF) & (d > 1e-9)).nonzero()
        edges.append(near.T)
        shifts.append(shift.expand(len(near), 3))
    return torch.cat(edges, dim=1), torch.cat(shifts)


def evaluate(model: Model, system: System) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return energy, forces and stress of a crystal."""
    numbers, positions, cell = system
    energies, forces, virials = model(
        parameters(), numbers, positions, *list_edges(positions, cell)
    )
    return energies[0], forces, stress_of(virials[0], torch.linalg.det(cell).abs())


def assert_near(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert actual.shape == expected.shape
    assert float((actual - expected).abs().max()) <= tolerance


@models
@pytest.mark.parametrize("name", ["H2O", "CH4", "C6H6"])
def test_edges_are_the_dense_square(model: Model, name: str) -> None:
    numbers, positions = make_molecule(name)
    energy, forces = literal.energy_forces(parameters(), numbers, positions)
    joined = join_molecules([(numbers, positions)])[:4]
    assert_near(edge_energies(parameters(), *joined)[0], energy, TOLERANCE)
    energies, edge_forces, _ = model(parameters(), *joined)
    assert not energies.requires_grad
    assert not edge_forces.requires_grad
    assert_near(energies[0], energy, TOLERANCE)
    assert_near(edge_forces, forces, TOLERANCE)


@models
def test_joined_molecules_do_not_feel_each_other(model: Model) -> None:
    molecules = [make_molecule(name) for name in ("H2O", "C6H6", "CH4")]
    *joined, owners = join_molecules(molecules)
    energies, forces, _ = model(parameters(), *joined, molecule_of_atom=owners, n_molecules=3)
    expected = [literal.energy_forces(parameters(), *molecule) for molecule in molecules]
    assert_near(energies, torch.stack([energy for energy, _ in expected]), TOLERANCE)
    assert_near(forces, torch.cat([forces for _, forces in expected]), TOLERANCE)


@models
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["rotation", "reflection"])
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_energy_is_invariant_and_the_rest_turns_along(
    model: Model, sign: float, seed: int
) -> None:
    q = torch.linalg.qr(random(3, 3, seed=seed))[0]
    q = q * sign * torch.linalg.det(q).sign()
    numbers, positions, cell = make_crystal()
    edges, shifts = list_edges(positions, cell)
    energies, forces, virials = model(parameters(), numbers, positions, edges, shifts)
    turned = model(parameters(), numbers, positions @ q, edges, shifts @ q)
    assert_near(turned[0], energies, TOLERANCE)
    assert_near(turned[1], forces @ q, TOLERANCE)
    # A sum of some hundred edges of up to 5 Å
    assert_near(turned[2], q.T @ virials @ q, 10.0 * TOLERANCE)


@models
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_order_of_atoms_and_edges_does_not_matter(model: Model, data: st.DataObject) -> None:
    numbers, positions, cell = make_crystal()
    edges, shifts = list_edges(positions, cell)
    energies, forces, _ = model(parameters(), numbers, positions, edges, shifts)
    order = torch.tensor(data.draw(st.permutations(range(4))))
    mixed = torch.randperm(
        edges.shape[1], generator=torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    )
    now_at = order.argsort()
    other = model(
        parameters(),
        *(numbers[order], positions[order], now_at[edges[:, mixed]], shifts[mixed]),
    )
    assert_near(other[0], energies, TOLERANCE)
    assert_near(other[1], forces[order], TOLERANCE)


@models
def test_an_image_is_as_good_as_the_atom(model: Model) -> None:
    numbers, positions, cell = make_crystal()
    energy, forces, stress = evaluate(model, (numbers, positions, cell))
    moved = positions + torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    moved[1] += cell[0] - cell[2]
    other = evaluate(model, (numbers, moved, cell))
    assert_near(other[0], energy, TOLERANCE)
    assert_near(other[1], forces, TOLERANCE)
    assert_near(other[2], stress, TOLERANCE)
    assert_near(forces.sum(dim=0), torch.zeros(3, dtype=torch.float64), TOLERANCE)


@models
def test_a_cell_twice_as_long_has_twice_the_energy_and_the_same_stress(model: Model) -> None:
    numbers, positions, cell = make_crystal()
    energy, forces, stress = evaluate(model, (numbers, positions, cell))
    longer = cell * torch.tensor([[2.0], [1.0], [1.0]], dtype=torch.float64)
    twice = (numbers.repeat(2), torch.cat((positions, positions + cell[0])), longer)
    other = evaluate(model, twice)
    assert_near(other[0], 2.0 * energy, 10.0 * TOLERANCE)
    assert_near(other[1], forces.repeat(2, 1), TOLERANCE)
    assert_near(other[2], stress, TOLERANCE)


@models
def test_forces_are_the_gradient(model: Model) -> None:
    numbers, positions, cell = make_crystal()
    forces = evaluate(model, (numbers, positions, cell))[1]
    along = random(4, 3, seed=2)
    along = along / along.norm()
    step = 1e-4
    e1, e2 = (
        evaluate(model, (numbers, positions + m * step * along, cell))[0]
        - evaluate(model, (numbers, positions - m * step * along, cell))[0]
        for m in (1, 2)
    )
    assert float(forces.abs().max()) > 0.1
    assert_near(-(forces * along).sum(), (8.0 * e1 - e2) / (12.0 * step), 1e-8)


@models
def test_stress_is_the_derivative_by_strain(model: Model) -> None:
    numbers, positions, cell = make_crystal()
    stress = evaluate(model, (numbers, positions, cell))[2]
    volume = torch.linalg.det(cell).abs()
    step = 1e-4
    places = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))
    expected = torch.zeros(6, dtype=torch.float64)
    for place, (i, j) in enumerate(places):
        strain = torch.zeros(3, 3, dtype=torch.float64)
        strain[i, j] = strain[j, i] = 1.0 if i == j else 0.5  # engineering shear

        def at(x: float, strain: torch.Tensor = strain) -> torch.Tensor:
            stretch = torch.eye(3, dtype=torch.float64) + x * strain
            return evaluate(model, (numbers, positions @ stretch, cell @ stretch))[0]

        e1, e2 = (at(m * step) - at(-m * step) for m in (1, 2))
        expected[place] = (8.0 * e1 - e2) / (12.0 * step) / volume
    assert float(stress.abs().min()) > 1e-4
    assert_near(stress, expected, 1e-8)


@models
def test_virial_is_symmetric(model: Model) -> None:
    numbers, positions, cell = make_crystal()
    virials = model(parameters(), numbers, positions, *list_edges(positions, cell))[2]
    assert_near(virials, virials.transpose(1, 2), 10.0 * TOLERANCE)


@models
def test_edges_beyond_the_cutoff_give_exactly_nothing(model: Model) -> None:
    numbers, positions, cell = make_crystal()
    edges, shifts = list_edges(positions, cell)
    energies, forces, virials = model(parameters(), numbers, positions, edges, shifts)
    padded = pad_edges(edges, shifts, n_edges=edges.shape[1] + 7)
    assert padded[0].shape[1] == edges.shape[1] + 7
    other = model(parameters(), numbers, positions, *padded)
    assert_near(other[0], energies, TOLERANCE)
    assert_near(other[1], forces, TOLERANCE)
    assert_near(other[2], virials, 10.0 * TOLERANCE)
    with pytest.raises(ValueError, match="n_edges must be at least 2, got 1"):
        pad_edges(edges[:, :2], shifts[:2], n_edges=1)


@models
def test_atoms_of_number_zero_are_none(model: Model) -> None:
    numbers, positions = make_molecule("CH4")
    joined = join_molecules([(numbers, positions)])
    energies, forces, _ = model(parameters(), *joined[:4])
    more = torch.cat((numbers, torch.zeros(3, dtype=torch.int64)))
    where = torch.cat((positions, torch.zeros(3, 3, dtype=torch.float64)))
    other = model(parameters(), more, where, *joined[2:4])
    assert_near(other[0], energies, TOLERANCE)
    assert_near(other[1][:5], forces, TOLERANCE)
    assert bool((other[1][5:] == 0.0).all())


@models
def test_energy_and_forces_vanish_smoothly_at_the_cutoff(model: Model) -> None:
    edges = torch.tensor([[0, 1], [1, 0]])

    def at(distance: float) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, distance]], dtype=torch.float64)
        energies, forces, _ = model(
            parameters(), torch.tensor([6, 8]), positions, edges, torch.zeros_like(positions)
        )
        return energies[0], forces

    apart, none = at(CUTOFF + 1e-6)
    energy, forces = at(CUTOFF - 1e-6)
    assert float(none.abs().max()) == 0.0
    assert_near(energy, apart, 1e-10)
    assert_near(forces, none, 1e-4)
    assert_near(at(CUTOFF - 1e-3)[0], apart, 1e-4)


@models
def test_one_atom_without_edges_feels_nothing(model: Model) -> None:
    numbers, positions = torch.tensor([6]), torch.zeros(1, 3, dtype=torch.float64)
    energies, forces, virials = model(parameters(), *join_molecules([(numbers, positions)])[:4])
    assert_near(energies[0], literal.energy(parameters(), numbers, positions), TOLERANCE)
    assert float(forces.abs().max()) == 0.0
    assert float(virials.abs().max()) == 0.0


def test_training_on_forces_and_virials_has_the_right_gradient() -> None:
    numbers, positions, cell = make_crystal()
    edges, shifts = list_edges(positions, cell)

    def loss(readout: torch.Tensor, *, create_graph: bool) -> torch.Tensor:
        weights = {**parameters(), "readout_w2": readout}
        results = edge_energies_forces(
            weights, numbers, positions, edges, shifts, create_graph=create_graph
        )
        return sum((r.square().sum() for r in results), start=torch.zeros(()))

    readout = parameters()["readout_w2"].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(readout, create_graph=True), readout)
    along = random(64, 1, seed=4)
    step = 1e-5
    shifted = {
        m: float(loss(parameters()["readout_w2"] + m * step * along, create_graph=False))
        for m in (-2, -1, 1, 2)
    }
    slope = (8.0 * (shifted[1] - shifted[-1]) - (shifted[2] - shifted[-2])) / (12.0 * step)
    assert float((gradient * along).sum()) == pytest.approx(slope, rel=1e-7)


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15),
    reason="PyTorch 2.5.1 and 2.6.0 compile it to wrong energies; the calculator does not",
)
@pytest.mark.full
@pytest.mark.parametrize("n_molecules", [1, 2])
def test_the_one_graph_form_compiles_whole(n_molecules: int) -> None:
    torch.compiler.reset()
    numbers, positions, cell = make_crystal()
    arguments = (parameters(), numbers, positions, *list_edges(positions, cell))
    owners = None
    if n_molecules == 2:
        molecules = [make_molecule("H2O"), make_molecule("CH4")]
        *joined, owners = join_molecules(molecules)
        arguments = (parameters(), *joined)
    compiled = torch.compile(edge_energies_forces_one_graph, fullgraph=True, dynamic=False)
    actual, expected = (
        model(*arguments, molecule_of_atom=owners, n_molecules=n_molecules)
        for model in (compiled, edge_energies_forces)
    )
    for result, wanted in zip(actual, expected, strict=True):
        assert_near(result, wanted, 10.0 * TOLERANCE)


@models
def test_float16_has_a_derivative_where_symmetry_makes_vectors_vanish(model: Model) -> None:
    # On the carbon of CO2; the derivative of their norm was 0/0.
    numbers, positions = torch.tensor([6, 8, 8]), torch.zeros(3, 3, dtype=torch.float64)
    positions[1, 0], positions[2, 0] = 1.25, -1.25
    short = cast_parameters(parameters(), dtype=torch.float16, device="cpu")
    energies, forces, virials = model(short, *join_molecules([(numbers, positions.half())])[:4])
    expected = model(parameters(), *join_molecules([(numbers, positions)])[:4])
    assert abs(float(energies - expected[0])) <= 0.03 * float(expected[0].abs())
    for actual, exact in zip((forces, virials), expected[1:], strict=True):
        assert actual.dtype == torch.float16
        assert_near(actual.double(), exact, 0.03 * float(exact.abs().max()))


@pytest.mark.parametrize("volume", [0.0, -1.0, float("nan")])
def test_a_stress_needs_a_volume(volume: float) -> None:
    virials = torch.eye(3).expand(2, 3, 3)
    with pytest.raises(ValueError, match=r"volumes must be positive, got \[1.0, "):
        stress_of(virials, torch.tensor([1.0, volume]))


NUMBERS = torch.ones(2, dtype=torch.int64)
POSITIONS = torch.zeros(2, 3)
EDGES = torch.tensor([[0, 1], [1, 0]])


@models
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NUMBERS[:0], POSITIONS[:0], EDGES, POSITIONS), "must hold at least one atom, got none"),
        ((NUMBERS, POSITIONS[0], EDGES, POSITIONS), r"positions must .* got \[3\]"),
        ((NUMBERS, POSITIONS.long(), EDGES, POSITIONS), "positions .* got torch.int64"),
        ((NUMBERS.float(), POSITIONS, EDGES, POSITIONS), "atomic_numbers .* got torch.float32"),
        ((NUMBERS[:1], POSITIONS, EDGES, POSITIONS), r"atomic_numbers .* \[2\].* got \[1\]"),
        ((NUMBERS, POSITIONS, EDGES.int(), POSITIONS), "edges must be int64, got torch.int32"),
        ((NUMBERS, POSITIONS, EDGES[0], POSITIONS), r"edges must have .* got \[2\]"),
        ((NUMBERS, POSITIONS, EDGES, POSITIONS.double()), "shifts must be torch.float32"),
        ((NUMBERS, POSITIONS, EDGES, POSITIONS[:1]), r"shifts .* \[2, 3\].* got \[1, 3\]"),
    ],
)
def test_wrong_inputs_are_named(
    model: Model, arguments: tuple[torch.Tensor, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model(parameters(), *arguments)


@models
def test_wrong_molecules_are_named(model: Model) -> None:
    inputs = (NUMBERS, POSITIONS, EDGES, POSITIONS)
    with pytest.raises(ValueError, match=r"n_molecules must be 1 where .* got 2"):
        model(parameters(), *inputs, n_molecules=2)
    with pytest.raises(ValueError, match=r"molecule_of_atom .* \[2\].* got \[1\]"):
        model(parameters(), *inputs, molecule_of_atom=NUMBERS[:1])
    with pytest.raises(ValueError, match="molecules must hold at least one, got none"):
        join_molecules([])
