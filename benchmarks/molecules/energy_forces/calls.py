"""The force-field workload: four molecules, random weights, and the ways to run the model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from benchmarks.molecules.energy_forces.literal import make_energy_forces
from benchmarks.molecules.energy_forces.one_graph import (
    energy_forces_in_sums,
    energy_forces_one_graph,
)
from ivhl.mlff.packed import pack_parameters, packed_energy_forces
from ivhl.mlff.painn import make_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.molecules.energy_forces import Size
    from ivhl.mlff.packed import Packed
    from ivhl.mlff.painn import Parameters

    Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
    Evaluate = Callable[
        [Parameters, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]
    ]

Atoms = tuple[tuple[int, float, float, float], ...]


def _hydrogen() -> Atoms:
    """H-H 0.7414 Å."""
    return ((1, 0.0, 0.0, 0.0), (1, 0.7414, 0.0, 0.0))


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


MOLECULES: Final[dict[str, Atoms]] = {
    "H2": _hydrogen(),
    "H2O": _water(),
    "CH4": _methane(),
    "C6H6": _benzene(),
}

make_naive = make_energy_forces


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


def make_one_graph(compiler: Compiler) -> Evaluate:
    """Return the one-graph form, compiled; weights are inputs."""
    return compiler(energy_forces_one_graph)


def pack(parameters: Parameters, *others: Any) -> tuple[Any, ...]:  # noqa: ANN401  (of any kind)
    """Return the inputs with the weights packed once, as an application would do at start-up."""
    packed: Packed = pack_parameters(parameters)
    return (packed, *others)


def make_packed(compiler: Compiler) -> Evaluate:
    """Return the one-graph form with packed weights, compiled; weights are inputs."""
    return compiler(packed_energy_forces)


def make_bound(compiler: Compiler) -> Evaluate:
    """Return the one-graph form, compiled for the weights of the first call.

    For a CUDA graph that is captured by hand: it copies all inputs at each call, which would include
    589,185 constant weights.
    """
    return _bound(compiler, energy_forces_one_graph)


def make_packed_bound(compiler: Compiler) -> Evaluate:
    """Return the same with packed weights."""
    return _bound(compiler, packed_energy_forces)


def _bound(compiler: Compiler, form: Callable[..., Any]) -> Evaluate:
    def bind(
        weights: Any,  # noqa: ANN401  (packed or not)
        _numbers: torch.Tensor,
        _positions: torch.Tensor,
    ) -> Callable[..., Any]:
        def evaluate(
            atomic_numbers: torch.Tensor, positions: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            energy, forces = form(weights, atomic_numbers, positions)
            return energy, forces

        return compiler(evaluate)

    return _bound_at_first_call(bind)


def make_recorded(compiler: Compiler) -> Evaluate:
    """Return the model as a list of operations, forward and back, compiled.

    What TorchScript and AOTInductor are given: neither can differentiate it by itself.
    ``torch.export`` does not follow ``torch.func.grad`` (2.5.1, 2.15.0), and TorchScript's own
    derivative of a ``chunk`` with an unused part has a wrong shape. So ``make_fx`` records what
    autograd does, with the weights of the first call as constants, and a module comes out that has
    no derivative left to take.
    """

    def record(
        parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
    ) -> Callable[..., Any]:
        def evaluate(
            atomic_numbers: torch.Tensor, positions: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return energy_forces_in_sums(parameters, atomic_numbers, positions)

        return compiler(make_fx(evaluate)(atomic_numbers, positions))

    return _bound_at_first_call(record)


def _bound_at_first_call(bind: Callable[..., Callable[..., Any]]) -> Evaluate:
    """Return a function that keeps the weights of its first call, and evaluates at every one."""
    bound: list[Callable[..., Any]] = []

    def call(
        parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not bound:
            bound.append(bind(parameters, atomic_numbers, positions))
        energy, forces = bound[0](atomic_numbers, positions)
        return energy, forces

    return call
