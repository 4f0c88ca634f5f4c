"""Check the values of atoms once, outside of compiled code.

Functions that evaluate the model check shapes and dtypes only: checking values would break the graph
of a compiled function, and wait for a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import torch

from ivhl.mlff.painn import MAX_ATOMIC_NUMBER, check_molecule
from ivhl.mlff.parameters import list_known_elements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.mlff.painn import Parameters

MIN_DISTANCE: Final = 1e-3  # Å; nearer atoms are taken for one atom entered twice


def check_atoms(
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
    *,
    parameters: Parameters | None = None,
    name: str = "atoms",
) -> None:
    """Refuse atoms for which the model would return NaN or a meaningless number.

    Compares all pairs, so it is meant for molecules. ``PaiNNCalculator`` does the same checks;
    ``batch.pad_molecules`` and ``edges.join_molecules`` call this without ``parameters``.

    Args:
        atomic_numbers: Shape ``[n_atoms]``, int64.
        positions: Shape ``[n_atoms, 3]``, in Å.
        parameters: Weights, which must know every element; default: all of ``[1, 100]`` are valid.
        name: Name of the atoms in messages.

    Raises:
        ValueError: If a shape or a dtype is wrong, there is no atom, an element is unknown, a
            position is not finite, or two atoms are nearer than 0.001 Å. The message names the atom.
    """
    check_molecule(atomic_numbers, positions)
    known = list_known_elements(parameters or {})
    for place, number in enumerate(atomic_numbers.tolist()):
        if number not in known:
            whole = len(known) == MAX_ATOMIC_NUMBER
            rule = f"in [1, {known[-1]}]" if whole else f"one of {', '.join(map(str, known))}"
            raise ValueError(f"{name}[{place}]: atomic number must be {rule}, got {number}")
    x = positions.detach()
    finite = x.isfinite().all(dim=1)
    if not bool(finite.all()):
        place = int(finite.logical_not().nonzero()[0, 0])
        raise ValueError(f"{name}[{place}] must have a finite position, got {x[place].tolist()}")
    check_distances(x, name=name)


def check_molecules(molecules: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Refuse molecules that cannot form one batch.

    Args:
        molecules: For each, atomic numbers and positions, as for ``check_atoms``.

    Raises:
        ValueError: If there is none, one is not valid (``check_atoms``), or positions differ in
            dtype. The message names the molecule.
    """
    if not molecules:
        raise ValueError("molecules must hold at least one, got none")
    dtype = molecules[0][1].dtype
    for place, (numbers, positions) in enumerate(molecules):
        where = f"molecules[{place}]"
        try:
            check_molecule(numbers, positions)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if positions.dtype != dtype:
            raise ValueError(
                f"{where}: positions must be {dtype} as the first, got {positions.dtype}"
            )
        check_atoms(numbers, positions, name=f"{where}.atoms")


def check_distances(positions: torch.Tensor, *, name: str = "atoms") -> None:
    """Refuse a molecule in which two atoms overlap.

    Args:
        positions: Shape ``[n_atoms, 3]``, finite, in Å.
        name: Name of the atoms in messages.

    Raises:
        ValueError: If two atoms are nearer than 0.001 Å.
    """
    wide = positions if positions.dtype == torch.float64 else positions.float()
    distances = torch.nn.functional.pdist(wide)
    if distances.numel() == 0 or float(distances.min()) >= MIN_DISTANCE:
        return
    first, second = torch.triu_indices(len(positions), len(positions), offset=1)
    place = int(distances.argmin())
    refuse_overlap(int(first[place]), int(second[place]), float(distances[place]), name=name)


def refuse_overlap(first: int, second: int, distance: float, *, name: str = "atoms") -> NoReturn:
    """Raise the error for two atoms, or an atom and an image, nearer than 0.001 Å.

    Raises:
        ValueError: Always.
    """
    raise ValueError(
        f"{name}[{first}] and {name}[{second}] must be at least {MIN_DISTANCE} Å apart, "
        f"got {distance:.3g} Å: is an atom entered twice?"
    )
