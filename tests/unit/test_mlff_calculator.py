"""The calculator follows ASE's rules, and refuses what it cannot compute."""

from __future__ import annotations

import json
import sys
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
pytest.importorskip("ase", reason="the extra `ase` is not installed; nox -s unit has it")
pytest.importorskip("vesin", reason="the extra `ase` is not installed; nox -s unit has it")
import numpy as np
import torch
from ase import Atoms, units
from ase.build import bulk, molecule
from ase.calculators.calculator import PropertyNotImplementedError
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS

from benchmarks.molecules.energy_forces import literal
from ivhl.compile import (
    CompileFallbackWarning,
    clear_compile_cache,
    compile_mode,
    measuring,
)
from ivhl.mlff import PaiNNCalculator, calculator, painn
from ivhl.mlff.calculator import COMPILES_EDGES

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    # ase 3.29 with NumPy 2.5
    pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning"),
    # PyTorch 2.5.1 while it compiles
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
]

TOLERANCE = 1e-12


@cache
def weights() -> dict[str, Any]:
    """Return random weights that know H, C, N and O."""
    references = torch.full((101,), torch.nan, dtype=torch.float64)
    references[[0, 1, 6, 7, 8]] = torch.tensor([0.0, -10.7, -48.8, -73.3, -104.5]).double()
    return {
        **painn.make_parameters(torch.Generator().manual_seed(0)),
        "reference_energies": references,
    }


def make_calculator(**arguments: Any) -> PaiNNCalculator:  # noqa: ANN401
    return PaiNNCalculator(weights(), **{"device": "cpu", "dtype": torch.float64, **arguments})


def make_molecule(name: str) -> Atoms:
    atoms = molecule(name)
    atoms.rattle(0.1, seed=1)
    return atoms


def make_crystal(*, pbc: Any = True) -> Atoms:  # noqa: ANN401
    """Return a skewed cell with sides shorter than the cutoff."""
    cell = [[3.9, 0.0, 0.0], [0.7, 4.3, 0.0], [-0.4, 0.6, 4.6]]
    inside = [[0.1, 0.1, 0.1], [0.4, 0.5, 0.2], [0.7, 0.2, 0.6], [0.3, 0.8, 0.7]]
    return Atoms("COHN", scaled_positions=inside, cell=cell, pbc=pbc)


def make_droplet() -> Atoms:
    """Return 27 molecules of water, 81 atoms: too many for a dense square."""
    droplet = Atoms()
    for place in np.ndindex(3, 3, 3):
        one = molecule("H2O")
        one.rattle(0.1, seed=sum(place))
        one.translate(3.1 * np.array(place))
        droplet += one
    return droplet


SYSTEMS: dict[str, Callable[[], Atoms]] = {
    "dense": lambda: make_molecule("CH3OH"),
    "edges": make_droplet,
    "periodic": make_crystal,
    "slab": lambda: make_crystal(pbc=[True, True, False]),
}
systems = pytest.mark.parametrize("make", SYSTEMS.values(), ids=SYSTEMS)


@pytest.mark.parametrize("name", ["H", "H2", "H2O", "CH4", "C6H6", "CH3OH"])
def test_a_molecule_is_the_model_and_its_reference_energies(name: str) -> None:
    atoms = make_molecule(name)
    atoms.calc = make_calculator()
    numbers, positions = torch.tensor(atoms.numbers), torch.tensor(atoms.positions)
    energy, forces = literal.energy_forces(weights(), numbers, positions)
    expected = float(energy + weights()["reference_energies"][numbers].sum())
    assert atoms.get_potential_energy() == pytest.approx(expected, abs=TOLERANCE)
    assert atoms.get_potential_energy(force_consistent=True) == atoms.get_potential_energy()
    assert np.abs(atoms.get_forces() - forces.numpy()).max() <= TOLERANCE


def test_a_large_molecule_is_the_same_model() -> None:
    atoms = make_droplet()
    atoms.calc = make_calculator()
    numbers, positions = torch.tensor(atoms.numbers), torch.tensor(atoms.positions)
    energy, forces = literal.energy_forces(weights(), numbers, positions)
    expected = float(energy + weights()["reference_energies"][numbers].sum())
    # Without images the cell is nothing, a flat one included
    for cell in (None, [[4, 0, 0], [0, 4, 0], [4, 4, 0]]):
        atoms.set_cell(cell)
        assert atoms.get_potential_energy() == pytest.approx(expected, abs=1e-10)  # of -3400 eV
        assert np.abs(atoms.get_forces() - forces.numpy()).max() <= TOLERANCE


def energy_forces(atoms: Atoms) -> tuple[float, Any]:
    return atoms.get_potential_energy(), atoms.get_forces()


@systems
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10_000), sign=st.sampled_from([1.0, -1.0]))
def test_turned_mirrored_moved_and_shuffled_atoms_are_the_same(
    make: Callable[[], Atoms], seed: int, sign: float
) -> None:
    atoms = make()
    atoms.calc = make_calculator()
    energy, forces = energy_forces(atoms)
    random = np.random.default_rng(seed)
    q = np.linalg.qr(random.normal(size=(3, 3)))[0]
    q *= sign * np.sign(np.linalg.det(q))
    order = random.permutation(len(atoms))
    other = atoms[order]
    other.set_cell(atoms.cell.array @ q)
    other.positions = atoms.positions[order] @ q + random.normal(size=3)
    other.calc = make_calculator()
    other_energy, other_forces = energy_forces(other)
    # The sum of 81 reference energies, -3400 eV, has no more digits than this
    assert other_energy == pytest.approx(energy, abs=1e-11 if len(atoms) > 64 else TOLERANCE)
    assert np.abs(other_forces - forces[order] @ q).max() <= TOLERANCE


@systems
def test_forces_are_the_gradient(make: Callable[[], Atoms]) -> None:
    atoms = make()
    atoms.calc = make_calculator()
    forces, start = atoms.get_forces(), atoms.positions.copy()
    along = np.random.default_rng(2).normal(size=(len(atoms), 3))
    along /= np.linalg.norm(along)
    step = 1e-4

    def at(shift: float) -> float:
        atoms.positions = start + shift * step * along
        return float(atoms.get_potential_energy())

    slope = (8.0 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12.0 * step)
    assert np.abs(forces).max() > 0.1
    assert -(forces * along).sum() == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("pbc", [True, [True, False, True]], ids=["all", "two"])
def test_stress_is_the_derivative_by_strain(pbc: Any) -> None:  # noqa: ANN401
    atoms = make_crystal(pbc=pbc)
    atoms.calc = make_calculator()
    stress, cell, volume = atoms.get_stress(), atoms.cell.array.copy(), atoms.get_volume()
    step = 1e-4
    for place, (i, j) in enumerate(((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))):
        strain = np.zeros((3, 3))
        strain[i, j] = strain[j, i] = 1.0 if i == j else 0.5

        def at(shift: float, strain: Any = strain) -> float:  # noqa: ANN401
            atoms.set_cell(cell @ (np.eye(3) + shift * step * strain), scale_atoms=True)
            return float(atoms.get_potential_energy())

        slope = (8.0 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12.0 * step)
        assert stress[place] == pytest.approx(slope / volume, abs=1e-8)
    assert np.abs(stress).max() > 1e-2


def test_without_a_periodic_cell_there_is_no_stress() -> None:
    atoms = make_molecule("H2O")
    atoms.calc = make_calculator()
    with pytest.raises(PropertyNotImplementedError, match="stress"):
        atoms.get_stress()
    line = Atoms("H", cell=[2.0, 0.0, 0.0], pbc=[True, False, False], calculator=make_calculator())
    assert np.isfinite(line.get_potential_energy())
    with pytest.raises(PropertyNotImplementedError, match="stress"):
        line.get_stress()


def test_a_slab_needs_no_third_vector() -> None:
    slab = make_crystal(pbc=[True, True, False])
    slab.calc = make_calculator()
    energy, forces = energy_forces(slab)
    open_slab = slab.copy()
    open_slab.cell[2] = 0.0
    open_slab.calc = make_calculator()
    assert energy_forces(open_slab)[0] == pytest.approx(energy, abs=TOLERANCE)
    far = slab.copy()
    far.cell[2] *= 5.0
    far.pbc = True
    far.calc = make_calculator()
    assert energy_forces(far)[0] == pytest.approx(energy, abs=TOLERANCE)
    assert np.abs(energy_forces(far)[1] - forces).max() <= TOLERANCE


def test_neighbours_come_through_every_face_of_the_cell() -> None:
    one = bulk("C", cubic=True)
    many = one * (3, 3, 3)
    one.calc = many.calc = make_calculator()
    assert many.get_potential_energy() == pytest.approx(27 * one.get_potential_energy(), abs=1e-9)
    # Symmetry makes vectors vanish, and there rounding is enlarged by the root of NORM_EPS
    assert np.abs(many.get_forces()).max() < 1e-8
    assert np.abs(many.get_stress() - one.get_stress()).max() < TOLERANCE


@pytest.mark.parametrize("name", ["dense", "periodic"])
def test_single_precision_is_as_good_far_from_the_origin(name: str) -> None:
    atoms = SYSTEMS[name]()
    atoms.calc = make_calculator()
    energy, forces = energy_forces(atoms)
    atoms.translate([1e4, -2e4, 3e4])
    atoms.calc = make_calculator(dtype=torch.float32)
    far_energy, far_forces = energy_forces(atoms)
    assert 0.0 < abs(far_energy - energy) < 1e-4
    assert np.abs(far_forces - forces).max() < 1e-4
    assert far_forces.dtype == np.float64


class Counter(PaiNNCalculator):  # type: ignore[misc,unused-ignore]
    """A calculator that counts what it computes."""

    calls = 0

    def calculate(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Count, then compute."""
        self.calls += 1
        super().calculate(*args, **kwargs)


@pytest.mark.parametrize("name", ["dense", "periodic"])
def test_nothing_is_computed_twice_and_every_change_is_seen(name: str) -> None:
    atoms = SYSTEMS[name]()
    atoms.calc = calculator = Counter(weights(), device="cpu", dtype=torch.float64)
    first = atoms.get_potential_energy()
    atoms.get_forces()
    atoms.get_potential_energy(force_consistent=True)
    assert calculator.calls == 1
    atoms.set_initial_charges(np.ones(len(atoms)))
    atoms.set_initial_magnetic_moments(np.ones(len(atoms)))
    atoms.set_masses(np.full(len(atoms), 2.0))
    assert atoms.get_potential_energy() == first
    assert calculator.calls == 1
    changes: tuple[Callable[[], object], ...] = (
        lambda: atoms.positions.__iadd__(1e-9 * np.arange(len(atoms))[:, None]),
        lambda: atoms.numbers.__setitem__(0, 7),
        lambda: atoms.set_cell([4.5, 4.6, 4.7]),
        lambda: atoms.set_pbc([True, False, False]),
        atoms.pop,
    )
    seen = [first]
    for number, change in enumerate(changes):
        change()
        energy = atoms.get_potential_energy()
        atoms.get_forces()
        assert calculator.calls == 2 + number
        fresh = atoms.copy()
        fresh.calc = make_calculator()
        assert energy == fresh.get_potential_energy()
        seen.append(energy)
    assert len(set(seen)) == len(seen) - (name == "dense")  # a molecule does not feel a cell


def test_results_are_the_callers_own() -> None:
    atoms = make_molecule("H2O")
    atoms.calc = make_calculator()
    forces = atoms.get_forces()
    kept = forces.copy()
    forces[:] = 0.0
    assert (atoms.get_forces() == kept).all()


def test_a_failure_leaves_no_result_of_another_geometry() -> None:
    atoms = make_molecule("H2O")
    calculator = make_calculator()
    calculator.calculate(atoms)
    assert "energy" in calculator.results
    atoms.positions[1] = np.nan
    with pytest.raises(ValueError, match=r"atoms\[1\] must have a finite position, got \[nan"):
        calculator.calculate(atoms)
    assert calculator.results == {}


BAD: dict[str, tuple[Callable[[], Atoms], str]] = {
    "empty": (Atoms, "atoms must hold at least one atom, got none"),
    "unknown": (
        lambda: Atoms("HFe", [[0, 0, 0], [0, 0, 2]]),
        r"atoms\[1\] must be an element that the weights know, H, C, N, O; got Fe \(26\)\. Use",
    ),
    "ghost": (lambda: Atoms("X"), r"atoms\[0\] must be an element .* got atomic number 0"),
    "too heavy": (lambda: Atoms([101]), r"atoms\[0\] must be an element .* got Md \(101\)"),
    "infinite": (
        lambda: Atoms("H2", [[0, 0, 0], [0, np.inf, 2]]),
        r"atoms\[1\] must have a finite position, got \[0.0, inf, 2.0\]",
    ),
    "overlap": (
        lambda: Atoms("H3", [[0, 0, 0], [0, 0, 2], [0, 0, 2.0005]]),
        r"atoms\[1\] and atoms\[2\] must be at least 0.001 Å apart, got 0.0005 Å",
    ),
    "overlap of many": (
        lambda: make_droplet() + Atoms("O", [make_droplet().positions[30]]),
        r"atoms\[(30|81)\] and atoms\[(30|81)\] must be at least 0.001 Å apart, got 0 Å",
    ),
    "overlap through the cell": (
        lambda: Atoms("H2", [[0, 0, 0], [4, 0, 0]], cell=[4, 4, 4], pbc=True),
        r"atoms\[[01]\] and atoms\[[01]\] must be at least 0.001 Å apart, got .* Å",
    ),
    "no cell": (lambda: Atoms("H", pbc=True), r"cell vector 0 must be at least 0.001 Å long"),
    "cell without a side": (
        lambda: Atoms("H", cell=[4, 4, 0], pbc=True),
        r"cell vector 2 must be at least 0.001 Å long where pbc is set, got \[0.0, 0.0, 0.0\]",
    ),
    "flat cell": (
        lambda: Atoms("H", cell=[[4, 0, 0], [0, 4, 0], [4, 4, 0]], pbc=True),
        "cell must have a volume where pbc is set, got vectors in one plane",
    ),
    "flat slab": (
        lambda: Atoms("H", cell=[[4, 0, 0], [8, 0, 0], [0, 0, 0]], pbc=[True, True, False]),
        "cell must have a volume where pbc is set, got vectors in one plane",
    ),
    "NaN cell": (
        lambda: Atoms("H", cell=[4, np.nan, 4], pbc=True),
        "cell vector 1 must be finite, got",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_computed_is_named(make: Callable[[], Atoms], message: str) -> None:
    atoms = make()
    atoms.calc = make_calculator()
    with pytest.raises(ValueError, match=message):
        atoms.get_potential_energy()
    with pytest.raises(ValueError, match=message):  # nor at the second try
        atoms.get_forces()


def test_arguments_that_make_no_sense_are_named() -> None:
    with pytest.raises(ValueError, match=r"compile must be True, False .*fast"):
        make_calculator(compile="fast")
    with pytest.raises(ValueError, match=r"dtype must be real floating point, got torch.int64"):
        make_calculator(dtype=torch.int64)
    with pytest.raises(ValueError, match=r"missing .*are these the weights of another model"):
        PaiNNCalculator({"student.weight": torch.zeros(3)})
    with pytest.raises(ValueError, match="cannot be changed, got dtype; make a new one"):
        make_calculator().set(dtype="float64")
    with pytest.raises(ValueError, match="atoms must be given to the first calculation"):
        make_calculator().calculate()


def test_what_ase_writes_beside_results_is_plain() -> None:
    written = json.loads(json.dumps(make_calculator(compile=True).todict()))
    assert written == {"compile": True, "device": "cpu", "dtype": "float64"}


@pytest.fixture
def _dynamo() -> None:
    try:
        torch._dynamo.eval_frame.check_if_dynamo_supported()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.mark.skipif(
    sys.version_info < (3, 13) or torch.__version__ >= "2.6", reason="torch.compile is there"
)
def test_where_torch_compile_refuses_python_a_molecule_runs_eagerly_and_says_so() -> None:
    atoms = make_molecule("H2O")
    atoms.calc = make_calculator()
    energy, forces = energy_forces(atoms)
    clear_compile_cache()
    atoms.calc = make_calculator(compile=True)
    with pytest.warns(CompileFallbackWarning, match="Dynamo is not supported on Python 3.13"):
        assert atoms.get_potential_energy() == pytest.approx(energy, abs=TOLERANCE)
    assert np.abs(atoms.get_forces() - forces).max() < TOLERANCE
    assert atoms.calc.n_compiled_graphs == 0


@pytest.mark.parametrize("name", ["H2O", "CO2"])
def test_float16_gives_finite_forces_in_a_bucket_with_pads(name: str) -> None:
    atoms = make_molecule(name)
    atoms.calc = make_calculator()
    _, expected = energy_forces(atoms)
    atoms.calc = make_calculator(compile=True, dtype=torch.float16)
    with compile_mode(None):  # padded, and not compiled, which takes a minute
        forces = atoms.get_forces()
    assert np.abs(forces - expected).max() < 64 * 2.0**-11  # of 1 eV/Å


@pytest.mark.full
@pytest.mark.usefixtures("_dynamo")
def test_a_molecule_that_changes_within_a_bucket_is_not_compiled_again() -> None:
    torch.compiler.reset()
    calculator = make_calculator(compile=True, dtype=torch.float32)
    plain = make_calculator(dtype=torch.float32)
    assert calculator.n_compiled_graphs == 0
    for name in ("H2O", "NH3", "CO2", "H2O"):
        atoms = make_molecule(name)
        atoms.calc = calculator
        energy, forces = energy_forces(atoms)
        atoms.calc = plain
        assert energy == pytest.approx(atoms.get_potential_energy(), abs=1e-4)
        assert np.abs(forces - atoms.get_forces()).max() < 1e-4
        assert calculator.n_compiled_graphs == 1
    # Another calculator finds the same graph
    other = make_calculator(compile=True, dtype=torch.float32)
    with torch.no_grad():
        make_calculator(compile=True, dtype=torch.float32).calculate(make_molecule("H2O"))
    other.calculate(make_molecule("CO2"))
    assert other.n_compiled_graphs == 1
    assert plain.n_compiled_graphs == 0


@pytest.mark.full
def test_ahead_of_time_a_bucket_is_one_graph_for_all_molecules_and_weights() -> None:
    plain = make_calculator()

    def make(given: dict[str, Any]) -> PaiNNCalculator:
        return PaiNNCalculator(given, compile="aotinductor", device="cpu")

    first = make(weights())
    assert first.n_compiled_graphs == 0
    for atoms in (make_molecule("H2"), make_molecule("CO"), Atoms("H")):
        atoms.calc = plain
        energy, forces = energy_forces(atoms)
        for one in (first, make(weights())):
            atoms.calc = one
            assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-5)
            assert np.abs(atoms.get_forces() - forces).max() < 1e-5
            assert one.n_compiled_graphs == 1
    shifted = make({**weights(), "readout_b2": weights()["readout_b2"] + 1.0})
    atoms = make_molecule("H2")
    atoms.calc = plain
    energy = atoms.get_potential_energy() + 2.0  # 1 eV for each atom
    atoms.calc = shifted
    assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-5)
    assert shifted.todict()["compile"] == "aotinductor"


def test_what_cannot_be_compiled_ahead_runs_eagerly_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("no such thing here")

    monkeypatch.setattr(calculator, "compile_ahead", refuse)
    clear_compile_cache()
    atoms = make_molecule("H2O")
    atoms.calc = make_calculator()
    energy = atoms.get_potential_energy()
    atoms.calc = make_calculator(compile="aotinductor")
    with measuring(), pytest.raises(NotImplementedError, match="no such thing here"):
        atoms.get_potential_energy()
    with pytest.warns(CompileFallbackWarning, match="4 atoms run eagerly.*no such thing here"):
        assert atoms.get_potential_energy() == pytest.approx(energy, abs=TOLERANCE)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileFallbackWarning)
        atoms.rattle(0.01)
        atoms.get_forces()
    assert atoms.calc.n_compiled_graphs == 0
    atoms.rattle(0.01)
    with measuring(), pytest.raises(NotImplementedError, match="no such thing here"):
        atoms.get_potential_energy()
    clear_compile_cache()  # forgets that it failed
    with pytest.warns(CompileFallbackWarning, match="no such thing here"):
        atoms.get_potential_energy()
    clear_compile_cache()


def test_where_all_is_to_run_eagerly_nothing_is_compiled_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calculator, "compile_ahead", pytest.fail)
    atoms = make_molecule("H2")
    atoms.calc = make_calculator()
    energy = atoms.get_potential_energy()
    atoms.calc = make_calculator(compile="aotinductor")
    with compile_mode(None):
        assert atoms.get_potential_energy() == pytest.approx(energy, abs=TOLERANCE)


@systems
def test_another_default_device_changes_nothing(make: Callable[[], Atoms]) -> None:
    atoms = make()
    atoms.calc = make_calculator()
    energy = atoms.get_potential_energy()
    with torch.device("meta"):
        atoms.calc = make_calculator()
        assert atoms.get_potential_energy() == pytest.approx(energy, abs=TOLERANCE)


def test_weights_that_change_afterwards_change_nothing() -> None:
    given = {**weights(), "readout_b2": weights()["readout_b2"].clone()}
    atoms = make_molecule("H2")
    atoms.calc = PaiNNCalculator(given, device="cpu", dtype=torch.float64)
    energy = atoms.get_potential_energy()
    given["readout_b2"] += 1.0
    atoms.rattle(1e-9)
    assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-6)


@pytest.mark.full
@pytest.mark.skipif(not COMPILES_EDGES, reason="edges are compiled from PyTorch 2.15 on")
def test_lists_of_edges_are_one_graph_for_all_lengths() -> None:
    torch.compiler.reset()
    calculator, plain = make_calculator(compile=True), make_calculator()
    for repeat in (1, 2, 3):
        atoms = make_crystal() * (repeat, 1, 1)
        atoms.calc = calculator
        energy, stress = atoms.get_potential_energy(), atoms.get_stress()
        atoms.calc = plain
        assert energy == pytest.approx(atoms.get_potential_energy(), abs=1e-10)
        assert np.abs(stress - atoms.get_stress()).max() < 1e-12
    assert calculator.n_compiled_graphs == 1


@pytest.mark.skipif(COMPILES_EDGES, reason="this PyTorch compiles edges")
def test_where_lists_of_edges_do_not_compile_they_run_eagerly_and_say_so() -> None:
    atoms = make_crystal()
    atoms.calc = make_calculator()
    energy = atoms.get_potential_energy()
    atoms.calc = make_calculator(compile=True)
    with pytest.warns(RuntimeWarning, match="runs eagerly"):
        assert atoms.get_potential_energy() == pytest.approx(energy, abs=TOLERANCE)


@pytest.mark.parametrize("name", ["dense", "periodic"])
def test_molecular_dynamics_conserves_energy_as_its_step_allows(name: str) -> None:
    # Random weights repel nothing: weak ones leave the atoms where they are for long enough
    weak = {**weights(), "readout_w2": 0.05 * weights()["readout_w2"]}

    def worst_error(step_fs: float) -> float:
        atoms = SYSTEMS[name]()
        atoms.calc = PaiNNCalculator(weak, device="cpu", dtype=torch.float64)
        heat = np.sqrt(300.0 * units.kB * atoms.get_masses())[:, None]
        atoms.set_momenta(heat * np.random.default_rng(0).normal(size=(len(atoms), 3)))
        start = atoms.get_total_energy()
        errors = []
        dynamics = VelocityVerlet(atoms, timestep=step_fs * units.fs)
        dynamics.attach(lambda: errors.append(abs(atoms.get_total_energy() - start)))
        dynamics.run(round(20.0 / step_fs))
        return float(max(errors))

    coarse, fine = worst_error(0.5), worst_error(0.25)
    assert fine < 1e-3
    assert 3.0 < coarse / fine < 5.0  # velocity Verlet: error of second order in its step


def test_optimisation_reaches_a_minimum() -> None:
    atoms = make_molecule("H2O")
    atoms.calc = make_calculator()
    start = atoms.get_potential_energy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        # Rounding changes how many steps random weights need: 260 with two threads, 267 with one.
        converged = BFGS(atoms, logfile=None).run(fmax=1e-3, steps=1000)
    assert converged
    assert np.abs(atoms.get_forces()).max() <= 1e-3
    assert atoms.get_potential_energy() < start - 1e-3


def test_the_shipped_weights_find_water_and_keep_its_energy() -> None:
    atoms = make_molecule("H2O")
    atoms.calc = PaiNNCalculator(device="cpu", dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert BFGS(atoms, logfile=None).run(fmax=1e-3, steps=100)
    # GFN2-xTB's own minimum, by tblite.
    assert atoms.get_distance(0, 1) == pytest.approx(0.95921, abs=1e-3)
    assert atoms.get_distance(0, 2) == pytest.approx(0.95921, abs=1e-3)
    assert atoms.get_angle(1, 0, 2) == pytest.approx(107.225, abs=0.2)
    assert atoms.get_potential_energy() == pytest.approx(-137.97654, abs=1e-3)
    heat = np.sqrt(300.0 * units.kB * atoms.get_masses())[:, None]
    atoms.set_momenta(heat * np.random.default_rng(0).normal(size=(3, 3)))
    start = atoms.get_total_energy()
    VelocityVerlet(atoms, timestep=0.25 * units.fs).run(400)
    assert atoms.get_total_energy() == pytest.approx(start, abs=2e-4)
