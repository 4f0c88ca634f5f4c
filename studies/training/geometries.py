"""Make geometries of a molecule: near its minimum, distorted, and along trajectories."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np
from ase.build import molecule
from ase.optimize import BFGS
from tblite.ase import TBLite

from studies.training.dynamics import ACCELERATION, BOLTZMANN, run_langevin
from studies.training.subjects import Family
from studies.training.xtb import METHOD, label

if TYPE_CHECKING:
    from ase import Atoms

    from studies.training.xtb import Array

RELAXED: Final = 1e-4  # eV/Å, largest force at a minimum
MAX_RELAX_STEPS: Final = 1000
HESSIAN_STEP: Final = 0.005  # Å
# Softer modes are drawn as if they were this stiff: along a straight line in Cartesian coordinates,
# the rotation of a methyl group would break its bonds.
SOFTEST: Final = 500.0  # cm^-1
SPEED_OF_LIGHT: Final = 2.99792458e-5  # cm/fs
TIME_STEP: Final = 0.5  # fs
FRICTION: Final = 0.02  # per fs
STEPS_BEFORE: Final = 200  # 100 fs to equilibrate, since the initial draw is harmonic
STEPS_BETWEEN: Final = 40  # 20 fs, two periods of a C-H stretching vibration
SCALE_NOISE: Final = 0.02  # Å


@dataclass(frozen=True, slots=True)
class Minimum:
    """A molecule at its minimum.

    Attributes:
        atoms: Elements, masses, and positions at the minimum.
        energy: Energy at the minimum, in eV.
        widths: Classical standard deviation of each normal coordinate at 1 K, in Å u^1/2.
        modes: One normal mode per row, shape ``[n_modes, n_atoms, 3]``: displacement in Å for
            a normal coordinate of 1 Å u^1/2.
    """

    atoms: Atoms
    energy: float
    widths: Array
    modes: Array


def find_minimum(name: str) -> Minimum:
    """Relax a molecule, and compute its normal modes.

    Args:
        name: Name in ``ase.build.molecule``.

    Raises:
        RuntimeError: If the relaxation does not converge.
    """
    atoms = molecule(name)
    atoms.calc = TBLite(method=METHOD, verbosity=0, accuracy=0.01)
    with BFGS(atoms, logfile=None) as optimiser:
        if not optimiser.run(fmax=RELAXED, steps=MAX_RELAX_STEPS):
            raise RuntimeError(f"{name} is not relaxed after {MAX_RELAX_STEPS} steps")
    energy, _ = label(atoms.numbers, atoms.positions)
    widths, modes = find_modes(atoms)
    return Minimum(atoms, energy, widths, modes)


def find_modes(atoms: Atoms) -> tuple[Array, Array]:
    """Return ``widths`` and ``modes`` of ``Minimum``, without translations and rotations.

    The Hessian is the central difference of the forces.
    """
    n = 3 * len(atoms)
    hessian = np.zeros((n, n))
    for row in range(n):
        shift = np.zeros((len(atoms), 3))
        shift.flat[row] = HESSIAN_STEP
        forward = label(atoms.numbers, atoms.positions + shift)[1]
        backward = label(atoms.numbers, atoms.positions - shift)[1]
        hessian[row] = (backward - forward).ravel() / (2.0 * HESSIAN_STEP)
    root_mass = np.sqrt(np.repeat(atoms.get_masses(), 3))
    eigenvalues, vectors = np.linalg.eigh(
        (hessian + hessian.T) / 2.0 / np.outer(root_mass, root_mass)
    )
    # The modes nearest to zero translate or rotate the molecule.
    n_whole = 5 if is_linear(atoms) else 6
    keep = np.sort(np.argsort(np.abs(eigenvalues))[n_whole:])
    softest = (2.0 * np.pi * SPEED_OF_LIGHT * SOFTEST) ** 2 / ACCELERATION
    widths = np.sqrt(BOLTZMANN / np.maximum(eigenvalues[keep], softest))
    return widths, (vectors.T[keep] / root_mass).reshape(-1, len(atoms), 3)


def is_linear(atoms: Atoms) -> bool:
    """Return whether all atoms lie on one line, to 0.01 Å."""
    centred = atoms.positions - atoms.positions.mean(axis=0)
    return bool(np.linalg.svd(centred, compute_uv=False)[1] < 0.01 * np.sqrt(len(atoms)))


def make_trajectory(
    minimum: Minimum, family: Family, n_frames: int, generator: np.random.Generator
) -> Array:
    """Return the geometries of one trajectory.

    Args:
        minimum: The molecule.
        family: Family of the geometries.
        n_frames: Number of geometries.
        generator: Source of all random numbers.

    Returns:
        Shape ``[n_frames, n_atoms, 3]``, in Å.
    """
    if family.kind == "dynamics":
        return run_dynamics(minimum, family.amount, n_frames, generator)
    return np.stack([draw(minimum, family, generator) for _ in range(n_frames)])


def draw(minimum: Minimum, family: Family, generator: np.random.Generator) -> Array:
    """Return one geometry of a family other than ``dynamics``, shape ``[n_atoms, 3]``, in Å."""
    at_rest: Array = minimum.atoms.positions
    if family.kind == "modes":
        heights = generator.standard_normal(len(minimum.widths)) * minimum.widths
        shift: Array = np.tensordot(heights, minimum.modes, axes=1)
        return at_rest + math.sqrt(family.amount) * shift
    noise = generator.standard_normal(at_rest.shape)
    if family.kind == "noise":
        return at_rest + family.amount * noise
    return at_rest * (1.0 + family.amount * generator.uniform(-1.0, 1.0)) + SCALE_NOISE * noise


def run_dynamics(
    minimum: Minimum, temperature: float, n_frames: int, generator: np.random.Generator
) -> Array:
    """Return snapshots of one run of Langevin dynamics.

    It starts from normal modes and velocities drawn at the temperature, so it equilibrates soon.

    Args:
        minimum: The molecule.
        temperature: Temperature in K.
        n_frames: Number of snapshots, 20 fs apart.
        generator: Source of all random numbers.

    Returns:
        Shape ``[n_frames, n_atoms, 3]``, in Å.
    """
    numbers, masses = minimum.atoms.numbers, minimum.atoms.get_masses()
    steps = run_langevin(
        lambda x: label(numbers, x)[1],
        draw(minimum, Family("", "modes", temperature), generator),
        masses,
        temperature=temperature,
        time_step=TIME_STEP,
        friction=FRICTION,
        generator=generator,
    )
    last = STEPS_BEFORE + n_frames * STEPS_BETWEEN
    return np.stack(list(islice(steps, STEPS_BEFORE + STEPS_BETWEEN - 1, last, STEPS_BETWEEN)))
