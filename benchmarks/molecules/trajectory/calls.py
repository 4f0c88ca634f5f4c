"""A moving molecule: the model at several geometries in turn, each a separate tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from benchmarks.molecules.energy_forces import calls as energy_forces_calls
from benchmarks.molecules.energy_forces.literal import energy_forces
from benchmarks.molecules.trajectory import N_FRAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.molecules.energy_forces import Size
    from benchmarks.molecules.energy_forces.calls import Compiler, Evaluate
    from ivhl.mlff.painn import Parameters

    Follow = Callable[
        [Parameters, torch.Tensor, Sequence[torch.Tensor]], tuple[torch.Tensor, torch.Tensor]
    ]


def make_inputs(
    size: Size, generator: torch.Generator
) -> tuple[Parameters, torch.Tensor, list[torch.Tensor]]:
    """Return random weights and eight geometries of a molecule, no two of them alike.

    Args:
        size: Which molecule.
        generator: Source of the weights and of the displacements, about 0.05 Å each.

    Returns:
        Parameters, atomic numbers ``[n_atoms]`` int64, and positions, eight times ``[n_atoms, 3]``
        float64 in Å.
    """
    parameters, numbers, first = energy_forces_calls.make_inputs(size, generator)
    shifts = torch.randn((N_FRAMES - 1, *first.shape), dtype=torch.float64, generator=generator)
    return parameters, numbers, [first, *(first + 0.05 * shift for shift in shifts)]


def follow(evaluate: Evaluate) -> Follow:
    """Return the loop around one evaluation, the same for every configuration.

    Results are copied out at each step: a dynamics code uses them before the next one, and a CUDA
    graph writes the next ones into the same memory.
    """

    def call(
        parameters: Parameters, atomic_numbers: torch.Tensor, frames: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        first = frames[0]
        energies = first.new_empty(len(frames))
        forces = first.new_empty((len(frames), *first.shape))
        for number, positions in enumerate(frames):
            energies[number], forces[number] = evaluate(parameters, atomic_numbers, positions)
        return energies, forces

    return call


def trajectory(
    parameters: Parameters, atomic_numbers: torch.Tensor, frames: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energies in eV ``[n_frames]`` and forces in eV/Å ``[n_frames, n_atoms, 3]``, eagerly.

    Args:
        parameters: Weights, as ``make_parameters`` makes them.
        atomic_numbers: Shape ``[n_atoms]``, int64.
        frames: Positions in Å, each of shape ``[n_atoms, 3]``.
    """
    return follow(energy_forces)(parameters, atomic_numbers, frames)


def make_naive(compiler: Compiler) -> Follow:
    """Return the loop around the compiled energy, with autograd outside."""
    return follow(energy_forces_calls.make_naive(compiler))


def make_one_graph(compiler: Compiler) -> Follow:
    """Return the loop around the one-graph form."""
    return follow(energy_forces_calls.make_one_graph(compiler))


def make_packed(compiler: Compiler) -> Follow:
    """Return the loop around the one-graph form with packed weights."""
    return follow(energy_forces_calls.make_packed(compiler))


def make_bound(compiler: Compiler) -> Follow:
    """Return the loop around the one-graph form that holds its weights."""
    return follow(energy_forces_calls.make_bound(compiler))


def make_packed_bound(compiler: Compiler) -> Follow:
    """Return the same with packed weights."""
    return follow(energy_forces_calls.make_packed_bound(compiler))


def make_recorded(compiler: Compiler) -> Follow:
    """Return the loop around the recorded operations."""
    return follow(energy_forces_calls.make_recorded(compiler))
