"""PaiNN over a list of edges: for large systems, periodic cells and concatenated molecules.

The cost grows with the number of neighbours, not with the square of the number of atoms. An edge
``(i, j)`` is a message that atom ``i`` receives from atom ``j``, or from an image of ``j``: its
vector is ``positions[j] - positions[i] + shift``. The energy depends on positions and cell only
through these vectors, so one gradient by them yields forces and virial.

Edges of the cutoff's length or more contribute exactly zero. A list may therefore hold more edges
than needed, e.g. those of a neighbour list with a skin, or padding (``pad_edges``): edges between
an atom and a far image of itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ivhl.mlff.atoms import check_molecules
from ivhl.mlff.painn import (
    CUTOFF,
    Parameters,
    check_molecule,
    filter_of,
    perceptron,
    radial_functions,
    update,
    with_constant,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def edge_energies(
    parameters: Parameters,
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
    edges: torch.Tensor,
    shifts: torch.Tensor,
    *,
    molecule_of_atom: torch.Tensor | None = None,
    n_molecules: int = 1,
) -> torch.Tensor:
    """Return the energy of each molecule in a list of edges; differentiable any number of times.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[0, 100]``; 0 is padding.
        positions: Shape ``[n_atoms, 3]``, in Å.
        edges: Shape ``[2, n_edges]``, int64: receiver and sender. Every pair occurs twice, once
            each way; no edge may have length zero.
        shifts: Shape ``[n_edges, 3]``, in Å: added to the sender's position; integer multiples of
            cell vectors, ``offsets @ cell``, or 0 for molecules.
        molecule_of_atom: Shape ``[n_atoms]``, int64, each in ``[0, n_molecules)``; default: one
            molecule.
        n_molecules: How many there are.

    Returns:
        Shape ``[n_molecules]``, in eV, without reference energies
        (``ivhl.mlff.parameters.add_reference_energies``).

    Raises:
        ValueError: If a shape or a dtype is wrong.

    Source:
        Schütt, Unke and Gastegger, PaiNN, arXiv:2102.03150, eqs. (7)-(10), as in ``painn``.
    """
    molecule = _molecule_of_atom(molecule_of_atom, n_molecules, atomic_numbers)
    _check(atomic_numbers, positions, edges, shifts, molecule)
    vectors = _vectors(positions, edges, shifts)
    return _energies(
        parameters, atomic_numbers, vectors, edges, molecule=molecule, n_molecules=n_molecules
    )


def edge_energies_forces(
    parameters: Parameters,
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
    edges: torch.Tensor,
    shifts: torch.Tensor,
    *,
    molecule_of_atom: torch.Tensor | None = None,
    n_molecules: int = 1,
    create_graph: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return energies, forces and virials: energies, then one gradient by autograd.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[0, 100]``; 0 is padding.
        positions: Shape ``[n_atoms, 3]``, in Å.
        edges: Shape ``[2, n_edges]``, int64: receiver and sender, as for ``edge_energies``.
        shifts: Shape ``[n_edges, 3]``, in Å.
        molecule_of_atom: Shape ``[n_atoms]``, int64; default: one molecule.
        n_molecules: How many there are.
        create_graph: Keep the graph, so that the results can be differentiated by the parameters.

    Returns:
        Energies in eV, shape ``[n_molecules]``, without reference energies; forces in eV/Å, shape
        ``[n_atoms, 3]``; virials in eV, shape ``[n_molecules, 3, 3]``: the derivatives of the
        energies by a homogeneous strain, which ``stress_of`` converts to a stress.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    molecule = _molecule_of_atom(molecule_of_atom, n_molecules, atomic_numbers)
    _check(atomic_numbers, positions, edges, shifts, molecule)
    with torch.enable_grad():
        vectors = _vectors(positions.detach(), edges, shifts.detach()).requires_grad_()
        energies = _energies(
            parameters, atomic_numbers, vectors, edges, molecule=molecule, n_molecules=n_molecules
        )
        (gradient,) = torch.autograd.grad(energies.sum(), vectors, create_graph=create_graph)
    if not create_graph:
        energies, vectors = energies.detach(), vectors.detach()
    return energies, *_forces_virials(
        gradient, vectors, positions, edges, molecule=molecule, n_molecules=n_molecules
    )


def edge_energies_forces_one_graph(
    parameters: Parameters,
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
    edges: torch.Tensor,
    shifts: torch.Tensor,
    *,
    molecule_of_atom: torch.Tensor | None = None,
    n_molecules: int = 1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return energies, forces and virials as one function, gradient included: the form to compile.

    Compile it from PyTorch 2.15 on: compiled by 2.5.1 and 2.6.0, it returns wrong energies on the
    CPU, without an error. Releases between 2.6.0 and 2.15.0 were not tested.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[0, 100]``; 0 is padding.
        positions: Shape ``[n_atoms, 3]``, in Å.
        edges: Shape ``[2, n_edges]``, int64: receiver and sender, as for ``edge_energies``.
        shifts: Shape ``[n_edges, 3]``, in Å.
        molecule_of_atom: Shape ``[n_atoms]``, int64; default: one molecule.
        n_molecules: How many there are.

    Returns:
        As ``edge_energies_forces``.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    molecule = _molecule_of_atom(molecule_of_atom, n_molecules, atomic_numbers)
    _check(atomic_numbers, positions, edges, shifts, molecule)

    def of_vectors(along: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        e = _energies(
            parameters, atomic_numbers, along, edges, molecule=molecule, n_molecules=n_molecules
        )
        return e.sum(), e

    vectors = _vectors(positions, edges, shifts)
    gradient, energies = torch.func.grad(of_vectors, has_aux=True)(vectors)
    return energies, *_forces_virials(
        gradient, vectors, positions, edges, molecule=molecule, n_molecules=n_molecules
    )


def stress_of(virials: torch.Tensor, volumes: torch.Tensor) -> torch.Tensor:
    """Return stresses in ASE's order: xx, yy, zz, yz, xz, xy; positive under tension.

    Args:
        virials: Shape ``[..., 3, 3]``, in eV: derivatives of energies by strain.
        volumes: Shape ``[...]``, in Å³, positive.

    Returns:
        Shape ``[..., 6]``, in eV/Å³.

    Raises:
        ValueError: If a volume is not positive; not checked in compiled code, which has no values.
    """
    if not torch.compiler.is_compiling() and not bool((volumes > 0.0).all()):
        raise ValueError(f"volumes must be positive, got {volumes.tolist()}")
    symmetric = (virials + virials.transpose(-1, -2)) / (2.0 * volumes[..., None, None])
    return torch.stack(
        [symmetric[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))],
        dim=-1,
    )


def join_molecules(
    molecules: Sequence[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Join molecules into one list of atoms and edges: a batch without padding.

    Finds edges by comparing all pairs of a molecule: for molecules, not for large systems.

    Args:
        molecules: For each, atomic numbers, shape ``[n]``, int64, in ``[1, 100]``, and positions in
            Å, shape ``[n, 3]``; all of one dtype, on one device.

    Returns:
        Atomic numbers ``[n_atoms]``, positions ``[n_atoms, 3]``, edges ``[2, n_edges]``, shifts
        ``[n_edges, 3]`` (zeros) and ``molecule_of_atom`` ``[n_atoms]``, as ``edge_energies`` takes
        them.

    Raises:
        ValueError: If there is no molecule, or one has no atom, an unknown element, a wrong shape or
            dtype, a position that is not finite, or two overlapping atoms.
    """
    check_molecules(molecules)
    edges, owners, first = [], [], 0
    for place, (numbers, positions) in enumerate(molecules):
        squared = (positions[:, None, :] - positions[None, :, :]).square().sum(dim=-1)
        near = (squared < CUTOFF**2).fill_diagonal_(False)  # noqa: FBT003  (a value)
        edges.append(near.nonzero().T + first)
        owners.append(torch.full_like(numbers, place))
        first += len(numbers)
    all_positions = torch.cat([positions for _, positions in molecules])
    all_edges = torch.cat(edges, dim=1)
    return (
        torch.cat([numbers for numbers, _ in molecules]),
        all_positions,
        all_edges,
        all_positions.new_zeros(all_edges.shape[1], 3),
        torch.cat(owners),
    )


def pad_edges(
    edges: torch.Tensor, shifts: torch.Tensor, *, n_edges: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad a list of edges with edges that contribute zero, so that few lengths occur.

    Args:
        edges: Shape ``[2, n]``, int64.
        shifts: Shape ``[n, 3]``, in Å.
        n_edges: Length of the result, at least ``n``.

    Returns:
        Edges ``[2, n_edges]`` and shifts ``[n_edges, 3]``. Padding joins atom 0 with an image
        of itself at twice the cutoff.

    Raises:
        ValueError: If ``n_edges`` is too small.
    """
    more = n_edges - edges.shape[1]
    if more < 0:
        raise ValueError(f"n_edges must be at least {edges.shape[1]}, got {n_edges}")
    far = shifts.new_tensor([2.0 * CUTOFF, 0.0, 0.0]).expand(more, 3)
    return (
        torch.cat((edges, edges.new_zeros(2, more)), dim=1),
        torch.cat((shifts, far), dim=0),
    )


def _vectors(positions: torch.Tensor, edges: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
    return positions.index_select(0, edges[1]) - positions.index_select(0, edges[0]) + shifts


def _energies(
    parameters: Parameters,
    atomic_numbers: torch.Tensor,
    vectors: torch.Tensor,
    edges: torch.Tensor,
    *,
    molecule: torch.Tensor,
    n_molecules: int,
) -> torch.Tensor:
    to, sent_by = edges[0], edges[1]
    d = vectors.square().sum(dim=-1).sqrt()
    unit = vectors / d[:, None]
    radial = with_constant(*radial_functions(d))
    real = atomic_numbers != 0
    s = parameters["embedding"].index_select(0, atomic_numbers)
    v = s.new_zeros(s.shape[0], 3, s.shape[1])
    for number, p in enumerate(parameters["layers"]):
        w = radial @ filter_of(p)
        x = perceptron(s, p, "message").index_select(0, sent_by) * w
        xs, xv, xr = x.chunk(3, dim=-1)
        s = s.index_add(0, to, xs)
        along = xr[:, None, :] * unit[:, :, None]
        if number > 0:  # vectors are zero before the first layer
            along = along + xv[:, None, :] * v.index_select(0, sent_by)
        # Not is_last in any layer, though nothing reads the last vectors, and torch.square: with the
        # choices of the dense form, these would be other operations than those measured.
        s, v = update(s, v.index_add(0, to, along), p, squared=torch.square)
    per_atom = perceptron(s, parameters, "readout")[:, 0]
    per_atom = per_atom.masked_fill(~real, 0.0)
    return _sum_by(molecule, per_atom, n_molecules)


def _forces_virials(
    gradient: torch.Tensor,
    vectors: torch.Tensor,
    positions: torch.Tensor,
    edges: torch.Tensor,
    *,
    molecule: torch.Tensor,
    n_molecules: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return forces ``[n_atoms, 3]`` and virials ``[n_molecules, 3, 3]`` from ``dE/d vector``.

    A strain stretches every vector, images included: ``dE/d strain = sum of vector x gradient``.
    """
    forces = torch.zeros_like(positions).index_add(0, edges[0], gradient)
    forces = forces.index_add(0, edges[1], -gradient)
    per_edge = vectors[:, :, None] * gradient[:, None, :]
    return forces, _sum_by(molecule.index_select(0, edges[0]), per_edge, n_molecules)


def _sum_by(molecule: torch.Tensor, values: torch.Tensor, n_molecules: int) -> torch.Tensor:
    """Return the sums of values ``[n, ...]`` over each molecule, ``[n_molecules, ...]``."""
    if n_molecules == 1:
        return values.sum(dim=0, keepdim=True)
    return values.new_zeros(n_molecules, *values.shape[1:]).index_add(0, molecule, values)


def _molecule_of_atom(
    given: torch.Tensor | None, n_molecules: int, atomic_numbers: torch.Tensor
) -> torch.Tensor:
    if given is not None:
        return given
    if n_molecules != 1:
        raise ValueError(
            f"n_molecules must be 1 where molecule_of_atom is not given, got {n_molecules}"
        )
    return torch.zeros_like(atomic_numbers)


def _check(
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
    edges: torch.Tensor,
    shifts: torch.Tensor,
    molecule_of_atom: torch.Tensor,
) -> None:
    check_molecule(atomic_numbers, positions)
    if molecule_of_atom.dtype != torch.int64:
        raise ValueError(f"molecule_of_atom must be int64, got {molecule_of_atom.dtype}")
    if molecule_of_atom.shape != atomic_numbers.shape:
        raise ValueError(
            f"molecule_of_atom must have shape {list(atomic_numbers.shape)}, one per position, "
            f"got {list(molecule_of_atom.shape)}"
        )
    if edges.dtype != torch.int64:
        raise ValueError(f"edges must be int64, got {edges.dtype}")
    if edges.ndim != 2 or edges.shape[0] != 2:  # noqa: PLR2004  (receiver and sender)
        raise ValueError(f"edges must have shape [2, n_edges], got {list(edges.shape)}")
    if shifts.dtype != positions.dtype:
        raise ValueError(f"shifts must be {positions.dtype} as positions, got {shifts.dtype}")
    if shifts.ndim != 2 or shifts.shape[0] != edges.shape[1] or shifts.shape[1] != 3:  # noqa: PLR2004
        raise ValueError(
            f"shifts must have shape [{edges.shape[1]}, 3], one per edge, got {list(shifts.shape)}"
        )
