"""Inputs of the force-field workload: three molecules and random weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from ivhl.mlff.painn import make_parameters

if TYPE_CHECKING:
    from ivhl.mlff.painn import Parameters
    from ivhl.workloads.energy_forces import Size

Atoms = tuple[tuple[int, float, float, float], ...]


def _water() -> Atoms:
    """O-H 0.9575 Å, H-O-H 104.51 degrees: the experimental equilibrium."""
    half = math.radians(104.51) / 2.0
    x, y = 0.9575 * math.sin(half), 0.9575 * math.cos(half)
    return ((8, 0.0, 0.0, 0.0), (1, x, y, 0.0), (1, -x, y, 0.0))


def _methane() -> Atoms:
    """C-H 1.087 Å, hydrogens on every other corner of a cube."""
    a = 1.087 / math.sqrt(3.0)
    return ((6, 0.0, 0.0, 0.0), (1, a, a, a), (1, a, -a, -a), (1, -a, a, -a), (1, -a, -a, a))


def _benzene() -> Atoms:
    """C-C 1.397 Å, C-H 1.084 Å, a regular hexagon."""
    corners = [(math.cos(k * math.pi / 3.0), math.sin(k * math.pi / 3.0)) for k in range(6)]
    return tuple(
        (number, radius * x, radius * y, 0.0)
        for number, radius in ((6, 1.397), (1, 1.397 + 1.084))
        for x, y in corners
    )


MOLECULES: Final[dict[str, Atoms]] = {"H2O": _water(), "CH4": _methane(), "C6H6": _benzene()}


def make_inputs(
    size: Size, generator: torch.Generator
) -> tuple[Parameters, torch.Tensor, torch.Tensor]:
    """Return random weights and a molecule near equilibrium.

    Args:
        size: Which molecule.
        generator: Source of the weights and of displacements of about 0.05 Å: at equilibrium
            symmetry makes forces vanish, and errors with them.

    Returns:
        Parameters, atomic numbers ``[n_atoms]`` int64, positions ``[n_atoms, 3]`` float64 in Å.
    """
    atoms = MOLECULES[size.molecule]
    numbers = torch.tensor([a[0] for a in atoms])
    positions = torch.tensor([a[1:] for a in atoms], dtype=torch.float64)
    parameters = make_parameters(generator)
    shift = torch.randn(positions.shape, dtype=torch.float64, generator=generator)
    return parameters, numbers, positions + 0.05 * shift
