"""Compute the errors of a model against its labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from ivhl.mlff.batch import batch_energies_forces
from ivhl.mlff.parameters import add_reference_energies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.mlff.painn import Parameters
    from studies.training.dataset import Array, Labelled

AT_ONCE: Final = 64  # frames


@dataclass(frozen=True, kw_only=True, slots=True)
class Errors:
    """Errors over some frames.

    Attributes:
        n_frames: Number of frames.
        energy_mae: Mean absolute error of the energy per atom, in meV/atom.
        energy_rmse: Root of its mean square.
        force_mae: Mean absolute error over the components of forces, in meV/Å.
        force_rmse: Root of its mean square.
    """

    n_frames: int
    energy_mae: float
    energy_rmse: float
    force_mae: float
    force_rmse: float


def residuals(parameters: Parameters, labelled: Labelled) -> tuple[Array, Array]:
    """Return model minus label for each frame.

    Args:
        parameters: Weights with reference energies; the model runs in their dtype.
        labelled: Frames of one molecule.

    Returns:
        Energies in eV per atom, shape ``[n_frames]``, and forces in eV/Å, shape
        ``[n_frames, n_atoms, 3]``.
    """
    dtype = parameters["readout_b2"].dtype
    numbers = torch.from_numpy(labelled.numbers)
    energies, forces = [], []
    for positions in torch.from_numpy(labelled.positions).to(dtype).split(AT_ONCE):
        many = numbers.expand(len(positions), -1)
        bound, f = batch_energies_forces(parameters, many, positions)
        energies.append(add_reference_energies(parameters, many, bound))
        forces.append(f.double())
    return (
        (torch.cat(energies).numpy() - labelled.energies) / len(numbers),
        torch.cat(forces).numpy() - labelled.forces,
    )


def errors_of(of_energies: Sequence[Array], of_forces: Sequence[Array]) -> Errors:
    """Return the errors from the residuals of one or several molecules.

    Raises:
        ValueError: If there is no frame.
    """
    energies = np.concatenate([x.ravel() for x in of_energies]) if of_energies else np.zeros(0)
    if not len(energies):
        raise ValueError("errors need at least one frame, got none")
    forces = np.concatenate([x.ravel() for x in of_forces])
    return Errors(
        n_frames=len(energies),
        energy_mae=1e3 * float(np.abs(energies).mean()),
        energy_rmse=1e3 * float(np.sqrt(np.square(energies).mean())),
        force_mae=1e3 * float(np.abs(forces).mean()),
        force_rmse=1e3 * float(np.sqrt(np.square(forces).mean())),
    )


def evaluate(parameters: Parameters, frames: Sequence[Labelled]) -> Errors:
    """Return the errors of a model over frames of any number of molecules.

    Raises:
        ValueError: If there is no frame.
    """
    found = [residuals(parameters, labelled) for labelled in frames]
    return errors_of([e for e, _ in found], [f for _, f in found])
