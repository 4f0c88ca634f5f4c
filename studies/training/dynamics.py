"""Langevin dynamics of a molecule at a temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Array = Any  # numpy.ndarray; the tool's type check has no numpy

# CODATA 2018.
BOLTZMANN: Final = 8.617333262e-5  # eV/K
# eV / (Å u) in Å/fs²: 1.602176634e-19 J / (1e-10 m * 1.66053906660e-27 kg), times 1e-20.
ACCELERATION: Final = 9.648533212e-3


def run_langevin(
    forces_of: Callable[[Array], Array],
    positions: Array,
    masses: Array,
    *,
    temperature: float,
    time_step: float,
    friction: float,
    generator: np.random.Generator,
) -> Iterator[Array]:
    """Yield positions after each step, endlessly; draw initial velocities at the temperature.

    The centre of mass moves as well, which does not affect the forces.

    Args:
        forces_of: Function from positions to forces in eV/Å, shape ``[n_atoms, 3]``.
        positions: Initial positions, shape ``[n_atoms, 3]``, in Å.
        masses: Shape ``[n_atoms]``, in u.
        temperature: Temperature in K.
        time_step: Time step in fs.
        friction: Friction in 1/fs.
        generator: Source of all random numbers.

    Source:
        Leimkuhler and Matthews, Appl. Math. Res. Express 2013, 34: the scheme BAOAB, whose
        positions are correct to fourth order in the time step for a harmonic force.
    """
    thermal = np.sqrt(BOLTZMANN * temperature * ACCELERATION / masses)[:, None]  # Å/fs
    kick = 0.5 * time_step * ACCELERATION / masses[:, None]
    keep = np.exp(-friction * time_step)
    x = positions.copy()
    v = thermal * generator.standard_normal(x.shape)
    forces = forces_of(x)
    while True:
        v = v + kick * forces
        x = x + 0.5 * time_step * v
        v = keep * v + np.sqrt(1.0 - keep**2) * thermal * generator.standard_normal(x.shape)
        x = x + 0.5 * time_step * v
        forces = forces_of(x)
        v = v + kick * forces
        yield x
