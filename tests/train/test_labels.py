"""Labels are those of GFN2-xTB in eV and eV/Å, and geometries are those of the molecule."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("tblite", reason="tblite and ase are only in envs/train/")
import numpy as np
from ase.build import molecule
from tblite.ase import TBLite

from studies.training.dynamics import ACCELERATION, BOLTZMANN
from studies.training.geometries import SPEED_OF_LIGHT, find_minimum, make_trajectory
from studies.training.subjects import FAMILIES, TRAINED, UNSEEN
from studies.training.xtb import label

# ase sets shapes in a way that NumPy 2.5 deprecates.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Setting the shape on a NumPy array:DeprecationWarning"
)

KINDS = {str(family.kind): family for family in reversed(FAMILIES)}
SHAKE = 0.05  # Å


def test_water_has_the_energy_and_forces_of_tblites_documentation() -> None:
    # https://tblite.readthedocs.io/en/latest/users/ase.html, eV and eV/Å
    water = molecule("H2O")
    energy, forces = label(water.numbers, water.positions)
    assert energy == pytest.approx(-137.96777594361677, abs=1e-5)
    expected = [
        [0.0, 0.0, -0.749527168],
        [0.0, -0.153506496, 0.374763584],
        [0.0, 0.153506496, 0.374763584],
    ]
    # The page uses tblite's default accuracy, which has an error of 1e-5.
    assert np.abs(forces - expected).max() < 3e-5


def test_hydrogen_has_the_binding_energy_of_the_method() -> None:
    # Two distant atoms have twice the energy of one, -0.3935 hartree in GFN2-xTB.
    together, _ = label(np.array([1, 1]), find_minimum("H2").atoms.positions)
    apart, forces = label(np.array([1, 1]), np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 50.0]]))
    assert apart == pytest.approx(-2.0 * 0.3935 * 27.2114, abs=0.1)
    assert 4.0 < apart - together < 7.0
    assert np.abs(forces).max() < 1e-3


@pytest.mark.parametrize("name", ["H2", "H2O", "HCOOH"])
def test_labels_agree_with_tblites_own_conversion(name: str) -> None:
    atoms = molecule(name)
    atoms.rattle(SHAKE, seed=1)
    energy, forces = label(atoms.numbers, atoms.positions)
    atoms.calc = TBLite(method="GFN2-xTB", verbosity=0, accuracy=0.01)
    # ase has constants of CODATA 2014.
    assert energy == pytest.approx(atoms.get_potential_energy(), rel=1e-7)
    assert np.abs(forces - atoms.get_forces()).max() < 1e-5


@pytest.mark.parametrize("name", ["H2", "H2O", "CO", "CH3CN", "C6H6"])
def test_forces_are_minus_the_gradient_of_the_energy(name: str) -> None:
    atoms = molecule(name)
    atoms.rattle(SHAKE, seed=2)
    forces = label(atoms.numbers, atoms.positions)[1]
    h = 1e-3
    for atom in range(0, len(atoms), 3):
        for axis in range(3):
            shift = np.zeros_like(atoms.positions)
            shift[atom, axis] = h
            # Fourth order: second order has an error of 2e-4 for the stiff bond of CO.
            e1, e2 = (
                label(atoms.numbers, atoms.positions + m * shift)[0]
                - label(atoms.numbers, atoms.positions - m * shift)[0]
                for m in (1, 2)
            )
            assert forces[atom, axis] == pytest.approx(-(8 * e1 - e2) / (12 * h), abs=1e-5)


def test_labels_do_not_depend_on_earlier_calls() -> None:
    atoms = molecule("H2O")
    first = label(atoms.numbers, atoms.positions)
    label(atoms.numbers, 1.1 * atoms.positions)
    second = label(atoms.numbers, atoms.positions)
    assert first[0] == second[0]
    assert np.array_equal(first[1], second[1])


def test_minimum_has_no_forces_and_the_frequencies_of_water() -> None:
    minimum = find_minimum("H2O")
    assert np.abs(label(minimum.atoms.numbers, minimum.atoms.positions)[1]).max() < 2e-4
    rates = np.sqrt(BOLTZMANN * ACCELERATION) / minimum.widths
    wave_numbers = rates / (2.0 * math.pi * SPEED_OF_LIGHT)
    # Measured, harmonic: 1649, 3832 and 3943 cm^-1 (Benedict, Gailar and Plyler,
    # J. Chem. Phys. 24, 1139, 1956). The method agrees within a tenth.
    assert wave_numbers == pytest.approx([1649.0, 3832.0, 3943.0], rel=0.1)


@pytest.mark.parametrize(("name", "n_modes"), [("H2", 1), ("CO2", 4), ("H2O", 3), ("CH4", 9)])
def test_modes_neither_translate_nor_rotate_the_molecule(name: str, n_modes: int) -> None:
    minimum = find_minimum(name)
    assert len(minimum.widths) == n_modes
    masses = minimum.atoms.get_masses()[:, None]
    at_rest = minimum.atoms.positions - minimum.atoms.get_center_of_mass()
    for mode in minimum.modes:
        assert np.abs((masses * mode).sum(axis=0)).max() < 1e-3
        assert np.abs((masses * np.cross(at_rest, mode)).sum(axis=0)).max() < 1e-2


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_trajectory_depends_only_on_its_generator(kind: str) -> None:
    minimum = find_minimum("H2O")
    first, again, other = (
        make_trajectory(minimum, KINDS[kind], 2, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert first.shape == (2, 3, 3)
    assert np.array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    assert np.abs(first[0] - first[1]).max() > 1e-3


def test_normal_modes_have_the_energy_of_their_temperature() -> None:
    minimum = find_minimum("C6H6")
    family = next(f for f in FAMILIES if f.name == "modes 600 K")
    cold = type(family)("", "modes", 20.0)  # so cold that all is harmonic
    frames = make_trajectory(minimum, cold, 40, np.random.default_rng(3))
    above = [label(minimum.atoms.numbers, x)[0] - minimum.energy for x in frames]
    expected = 0.5 * len(minimum.widths) * BOLTZMANN * cold.amount
    # Softer modes are drawn as if they were stiffer, so they have less energy.
    assert 0.75 * expected < np.mean(above) < 1.1 * expected


@pytest.mark.parametrize("name", [*TRAINED, *UNSEEN])
def test_molecules_have_closed_shells_and_four_elements(name: str) -> None:
    atoms = molecule(name)
    assert set(atoms.numbers.tolist()) <= {1, 6, 7, 8}
    assert sum(atoms.numbers) % 2 == 0
    assert not atoms.get_initial_magnetic_moments().any()
