"""Inputs, calls and reference of the workload of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.molecules.energy_forces import reference as energy_forces_reference
from benchmarks.molecules.energy_forces.calls import MOLECULES
from ivhl.mlff.edges import (
    edge_energies,
    edge_energies_forces,
    edge_energies_forces_one_graph,
    join_molecules,
)
from ivhl.mlff.painn import make_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.molecules.edge_list import Size
    from ivhl.mlff.painn import Parameters

    Results = tuple[torch.Tensor, torch.Tensor]


def make_inputs(
    size: Size, generator: torch.Generator
) -> tuple[Parameters, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return random weights, and molecules near equilibrium joined into one list of edges.

    Args:
        size: Which molecules.
        generator: Source of the weights and of displacements of about 0.05 Å.

    Returns:
        Parameters; atomic numbers ``[n_atoms]`` int64; positions ``[n_atoms, 3]`` float64 in Å;
        edges ``[2, n_edges]`` and the molecule of each atom, int64; the numbers of the molecules.
    """
    molecules = []
    for name in size.molecules * size.copies:
        positions = torch.tensor([a[1:] for a in MOLECULES[name]], dtype=torch.float64)
        shift = torch.randn(positions.shape, dtype=torch.float64, generator=generator)
        molecules.append((torch.tensor([a[0] for a in MOLECULES[name]]), positions + 0.05 * shift))
    numbers, positions, edges, _, molecule_of_atom = join_molecules(molecules)
    parameters = make_parameters(generator)
    return parameters, numbers, positions, edges, molecule_of_atom, torch.arange(len(molecules))


def energies_forces(  # noqa: PLR0917  (inputs of a workload come in order)
    parameters: Parameters,
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
    edges: torch.Tensor,
    molecule_of_atom: torch.Tensor,
    molecules: torch.Tensor,
) -> Results:
    """Return energies ``[n_molecules]`` in eV and forces ``[n_atoms, 3]`` in eV/Å."""
    energies, forces, _ = edge_energies_forces(
        parameters,
        atomic_numbers,
        positions,
        edges,
        positions.new_zeros(edges.shape[1], 3),
        molecule_of_atom=molecule_of_atom,
        n_molecules=molecules.shape[0],
    )
    return energies, forces


def energies_forces_one_graph(  # noqa: PLR0917  (inputs of a workload come in order)
    parameters: Parameters,
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
    edges: torch.Tensor,
    molecule_of_atom: torch.Tensor,
    molecules: torch.Tensor,
) -> Results:
    """Return the same, the gradient traced with the energies."""
    energies, forces, _ = edge_energies_forces_one_graph(
        parameters,
        atomic_numbers,
        positions,
        edges,
        positions.new_zeros(edges.shape[1], 3),
        molecule_of_atom=molecule_of_atom,
        n_molecules=molecules.shape[0],
    )
    return energies, forces


def make_energies_forces(compiler: Callable[..., Any]) -> Callable[..., Results]:
    """Return the same with the energies compiled by ``compiler`` and autograd outside."""
    compiled = compiler(edge_energies)

    def call(  # noqa: PLR0917  (inputs of a workload come in order)
        parameters: Parameters,
        atomic_numbers: torch.Tensor,
        positions: torch.Tensor,
        edges: torch.Tensor,
        molecule_of_atom: torch.Tensor,
        molecules: torch.Tensor,
    ) -> Results:
        x = positions.detach().requires_grad_()
        energies = compiled(
            parameters,
            atomic_numbers,
            x,
            edges,
            positions.new_zeros(edges.shape[1], 3),
            molecule_of_atom=molecule_of_atom,
            n_molecules=molecules.shape[0],
        )
        (gradient,) = torch.autograd.grad(energies.sum(), x)
        return energies.detach(), -gradient

    return call


def reference(
    parameters: dict[str, Any],
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
    _edges: torch.Tensor,
    molecule_of_atom: torch.Tensor,
    molecules: torch.Tensor,
) -> Results:
    """Return the same, float64, molecule by molecule and without the list of edges."""
    each = [
        energy_forces_reference.reference(parameters, atomic_numbers[own], positions[own])
        for own in (molecule_of_atom == number for number in molecules)
    ]
    return torch.stack([e for e, _ in each]), torch.cat([f for _, f in each])
