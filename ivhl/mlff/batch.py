"""PaiNN over dense squares of pairs: for one molecule, or a batch padded to one length with a mask.

For molecules of a few dozen atoms, all pairs are faster than a neighbour list. Padding has atomic
number 0: it sends and receives no messages, adds nothing to an energy, and its positions are
ignored. Lengths come from a few buckets, so that few graphs are compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ivhl.mlff.atoms import check_molecules
from ivhl.mlff.painn import (
    Parameters,
    check_molecule,
    filter_of,
    perceptron,
    product_of_few,
    radial_functions,
    times_itself,
    update,
    with_constant,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Each at most twice the one before, since the cost is quadratic in the length; 12 for benzene.
BUCKETS: Final = (2, 4, 8, 12, 16, 24, 32, 48, 64)
# Compiled for one CPU thread, 2.5.1 and 2.6.0 lose additions in the gradient of a row lookup
# (docs/findings.md): the gradient of the embedding had a relative error of 1. 2.15.0 is right;
# releases between were not tested.
_LOSES_ADDITIONS: Final = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15)


def energy_forces(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energy and forces of one molecule: a batch of one.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes, and forces in eV/Å, shape ``[n_atoms, 3]``.

    Raises:
        ValueError: If a shape or a dtype is wrong, or there is no atom.
    """
    check_molecule(atomic_numbers, positions)
    energies, forces = batch_energies_forces(parameters, atomic_numbers[None], positions[None])
    return energies[0], forces[0]


def batch_energies(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return the energy of each molecule of a batch; differentiable any number of times.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_molecules, n_atoms]``, int64, each in ``[0, 100]``; 0 is
            padding, at any position.
        positions: Shape ``[n_molecules, n_atoms, 3]``, in Å. Any value for padding.

    Returns:
        Shape ``[n_molecules]``, in eV, without reference energies
        (``ivhl.mlff.parameters.add_reference_energies``). A molecule without atoms has 0.

    Raises:
        ValueError: If a shape or a dtype is wrong.

    Source:
        Schütt, Unke and Gastegger, PaiNN, arXiv:2102.03150, eqs. (7)-(10), as in ``painn``.
        Contractions over pairs are multiplications and sums, which fuse when compiled;
        ``torch.einsum`` would call a batched matrix multiplication for tiny matrices.
    """
    _check(atomic_numbers, positions)
    real = atomic_numbers != 0
    unit, radial = _pairs(real, positions)
    n_molecules, n_atoms, _, _ = unit.shape
    s = _embed(parameters["embedding"], atomic_numbers).masked_fill(~real[..., None], 0.0)
    v: torch.Tensor | None = None
    for number, p in enumerate(parameters["layers"]):
        w = radial @ filter_of(p)
        ws, wv, wr = w.view(n_molecules, n_atoms, n_atoms, -1).chunk(3, dim=-1)
        x = perceptron(s, p, "message", product=product_of_few)
        xs, xv, xr = x[:, None, :, :].chunk(3, dim=-1)  # [molecule, 1, j, F]
        s = s + (ws * xs).sum(dim=2)
        along = ((wr * xr)[..., None, :] * unit[..., None]).sum(dim=2)
        if v is not None:
            along = v + ((wv * xv)[..., None, :] * v[:, None]).sum(dim=2) + along
        is_last = number == len(parameters["layers"]) - 1
        s, v = update(s, along, p, squared=times_itself, is_last=is_last, product=product_of_few)
    per_atom = perceptron(s, parameters, "readout", product=product_of_few)[..., 0]
    return per_atom.masked_fill(~real, 0.0).sum(dim=1)


def batch_energies_forces(
    parameters: Parameters,
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
    *,
    create_graph: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energies and forces of a batch: energies, then their gradient by autograd.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_molecules, n_atoms]``, int64, each in ``[0, 100]``; 0 is padding.
        positions: Shape ``[n_molecules, n_atoms, 3]``, in Å. Any value for padding.
        create_graph: Keep the graph, so that both results can be differentiated by the parameters:
            to train on forces.

    Returns:
        Energies in eV, shape ``[n_molecules]``, without reference energies, and forces in eV/Å,
        shape ``[n_molecules, n_atoms, 3]``, 0 for padding.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    _check(atomic_numbers, positions)
    with torch.enable_grad():
        x = positions.detach().requires_grad_()
        energies = batch_energies(parameters, atomic_numbers, x)
        (gradient,) = torch.autograd.grad(energies.sum(), x, create_graph=create_graph)
    return energies if create_graph else energies.detach(), -gradient


def batch_energies_forces_one_graph(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energies and forces as one function of the positions, gradient included.

    Compile this form: ``torch.func.grad`` is traced with the energy. Where weights
    require a gradient, both results can be differentiated by them.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_molecules, n_atoms]``, int64, each in ``[0, 100]``; 0 is padding.
        positions: Shape ``[n_molecules, n_atoms, 3]``, in Å. Any value for padding.

    Returns:
        As ``batch_energies_forces``.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    _check(atomic_numbers, positions)

    def of_positions(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        energies = batch_energies(parameters, atomic_numbers, x)
        return energies.sum(), energies

    gradient, energies = torch.func.grad(of_positions, has_aux=True)(positions)
    return energies, -gradient


def bucket_of(n_atoms: int) -> int:
    """Return the smallest length of ``BUCKETS`` that fits a molecule.

    Args:
        n_atoms: At least 1.

    Raises:
        ValueError: If ``n_atoms`` is below 1 or above the largest bucket.
    """
    if n_atoms < 1:
        raise ValueError(f"n_atoms must be at least 1, got {n_atoms}")
    for bucket in BUCKETS:
        if n_atoms <= bucket:
            return bucket
    raise ValueError(
        f"n_atoms must be at most {BUCKETS[-1]}, the largest bucket, got {n_atoms}; "
        "larger systems are for ivhl.mlff.edges"
    )


def group_by_bucket(counts: Iterable[int]) -> dict[int, list[int]]:
    """Group molecules by bucket, so that batches have little padding.

    Args:
        counts: Number of atoms of each molecule, each at least 1.

    Returns:
        For each bucket with molecules, ascending, their indices in ``counts``.

    Raises:
        ValueError: If a molecule is larger than the largest bucket.
    """
    groups: dict[int, list[int]] = {}
    for place, n_atoms in enumerate(counts):
        groups.setdefault(bucket_of(n_atoms), []).append(place)
    return dict(sorted(groups.items()))


def pad_molecules(
    molecules: Sequence[tuple[torch.Tensor, torch.Tensor]], *, n_atoms: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad molecules of different length into one batch.

    Args:
        molecules: For each, atomic numbers, shape ``[n]``, int64, in ``[1, 100]``, and positions in
            Å, shape ``[n, 3]``; all of one dtype, on one device.
        n_atoms: Length of the batch; default: the bucket of the longest molecule.

    Returns:
        Atomic numbers ``[n_molecules, n_atoms]`` and positions ``[n_molecules, n_atoms, 3]``; 0
        for padding.

    Raises:
        ValueError: If there is no molecule, or one has no atom, an unknown element, a wrong shape or
            dtype, a position that is not finite, two overlapping atoms, or too many atoms.
    """
    check_molecules(molecules)
    longest = max(len(numbers) for numbers, _ in molecules)
    length = bucket_of(longest) if n_atoms is None else n_atoms
    if length < longest:
        raise ValueError(f"n_atoms must be at least {longest}, the longest molecule, got {length}")
    first_numbers, first_positions = molecules[0]
    all_numbers = first_numbers.new_zeros(len(molecules), length)
    all_positions = first_positions.new_zeros(len(molecules), length, 3)
    for place, (numbers, positions) in enumerate(molecules):
        all_numbers[place, : len(numbers)] = numbers
        all_positions[place, : len(numbers)] = positions
    return all_numbers, all_positions


def _embed(embedding: torch.Tensor, atomic_numbers: torch.Tensor) -> torch.Tensor:
    """Return the embedding rows of the elements, in a form whose compiled gradient is right."""
    if embedding.requires_grad and _LOSES_ADDITIONS and torch.compiler.is_compiling():
        elements = torch.arange(embedding.shape[0], device=embedding.device)
        return (atomic_numbers[..., None] == elements).to(embedding.dtype) @ embedding
    return embedding[atomic_numbers]


def _pairs(real: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return unit vectors ``[m, i, j, 3]`` and radial functions times cutoff ``[m, i, j, 21]``.

    A pair of an atom with itself or with padding gets distance 1 and cutoff 0, which avoids a
    division by zero in values and derivatives. Positions of padding are replaced by 0, since they
    may be NaN.
    """
    n_atoms = positions.shape[1]
    x = torch.where(real[..., None], positions, torch.zeros_like(positions))
    itself = torch.eye(n_atoms, dtype=torch.bool, device=positions.device)
    no_pair = ~(real[:, :, None] & real[:, None, :]) | itself
    difference = x[:, None, :, :] - x[:, :, None, :]
    d = (difference * difference).sum(dim=-1).masked_fill(no_pair, 1.0).sqrt()
    radial = with_constant(*radial_functions(d, no_pair))
    return difference / d[..., None], radial


def _check(atomic_numbers: torch.Tensor, positions: torch.Tensor) -> None:
    if not positions.dtype.is_floating_point:
        raise ValueError(f"positions must be real floating point, got {positions.dtype}")
    if positions.ndim != 3 or positions.shape[2] != 3:  # noqa: PLR2004  (axes, and x, y, z)
        raise ValueError(
            f"positions must have shape [n_molecules, n_atoms, 3], got {list(positions.shape)}"
        )
    if atomic_numbers.dtype != torch.int64:
        raise ValueError(f"atomic_numbers must be int64, got {atomic_numbers.dtype}")
    if atomic_numbers.shape != positions.shape[:2]:
        raise ValueError(
            f"atomic_numbers must have shape {list(positions.shape[:2])}, one per position, "
            f"got {list(atomic_numbers.shape)}"
        )
