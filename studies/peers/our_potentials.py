"""Our PaiNN and the seed student as peers, with random weights (``Peer.make``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from ivhl.compile import get_compiled
from ivhl.measure.imports import SEED
from ivhl.mlff import painn
from ivhl.mlff.ahead import compile_ahead
from ivhl.mlff.batch import energy_forces
from ivhl.mlff.packed import pack_parameters, packed_energy_forces
from ivhl.mlff.parameters import cast_parameters, join_parameters
from studies.founding import student_seed
from studies.peers.potentials import Potential

if TYPE_CHECKING:
    from collections.abc import Callable

    from ase import Atoms

    Ahead = Literal["aotinductor"]


def make_painn(
    numbers: torch.Tensor, dtype: torch.dtype, *, compiled: bool | Ahead = False
) -> Potential:
    """Return ``ivhl.mlff.energy_forces``, or a form compiled for fixed shapes."""
    parameters = _random(painn.make_parameters, dtype)
    weights: Any = parameters
    run: Callable[..., tuple[torch.Tensor, torch.Tensor]] = energy_forces
    if compiled == "aotinductor":
        weights = join_parameters(parameters)
        ahead = compile_ahead(len(numbers), dtype=dtype)

        def run(
            joined: torch.Tensor, numbers: torch.Tensor, positions: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            energies, forces = ahead(joined, numbers[None], positions[None])
            return energies[0], forces[0]

    elif compiled:
        weights = pack_parameters(parameters)
        run = get_compiled(packed_energy_forces, dynamic=False, fullgraph=True)
    return Potential(
        evaluate=lambda positions: run(weights, numbers, positions),
        n_weights=_count(parameters),
    )


def make_calculator(
    numbers: torch.Tensor, dtype: torch.dtype, *, compiled: bool | Ahead = False
) -> Potential:
    """Return ``ivhl.mlff.PaiNNCalculator``, which gets new positions at each call."""
    from ase import Atoms  # noqa: PLC0415  (the other peers run without ase)

    from ivhl.mlff.calculator import PaiNNCalculator  # noqa: PLC0415  (needs ase)

    parameters = _random(painn.make_parameters, dtype)
    atoms = Atoms(numbers=numbers.tolist(), positions=torch.zeros(len(numbers), 3).numpy())
    atoms.calc = PaiNNCalculator(parameters, compile=compiled, device="cpu", dtype=dtype)
    return Potential(evaluate=through_ase(atoms), n_weights=_count(parameters))


def through_ase(atoms: Atoms) -> Callable[[torch.Tensor], tuple[Any, Any]]:
    """Return a function that sets positions and gets energy and forces, as each step in ASE does."""

    def evaluate(positions: torch.Tensor) -> tuple[Any, Any]:
        atoms.set_positions(positions.numpy())
        return atoms.get_potential_energy(), atoms.get_forces()

    return evaluate


def make_student(numbers: torch.Tensor, dtype: torch.dtype) -> Potential:
    """Return the seed student's energy and forces, eager, as its benchmark called it."""
    parameters = _random(student_seed.make_parameters, dtype)
    return Potential(
        evaluate=lambda positions: student_seed.energy_forces(parameters, numbers, positions),
        n_weights=_count(parameters),
    )


def _random(make: Callable[[torch.Generator], painn.Parameters], dtype: torch.dtype) -> Any:  # noqa: ANN401
    """Return random weights in ``dtype``, rounded to float32 for every dtype."""
    rounded = cast_parameters(
        make(torch.Generator().manual_seed(SEED)), dtype=torch.float32, device="cpu"
    )
    return cast_parameters(rounded, dtype=dtype, device="cpu")


def _count(node: Any) -> int:  # noqa: ANN401  (a nest of tensors)
    if isinstance(node, dict):
        return sum(_count(child) for child in node.values())
    if isinstance(node, list):
        return sum(_count(child) for child in node)
    return int(node.numel())
