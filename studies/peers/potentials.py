"""Time and judge models of energies and forces, each with its own random weights.

All models are different functions, so there is no common reference. Each is compared with the same
model in float64, its twin: the forces of the twin must agree with central differences of its energy,
and float32 results must agree with those of the twin at the same geometry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.measure.imports import SEED
from ivhl.workload import resolve
from studies.peers.judging import Judgement, Started

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.workload import Workload
    from studies.peers.suite import Peer

    Evaluate = Callable[[torch.Tensor], tuple[Any, Any]]

# Each call evaluates the next geometry. A model that caches results would have to keep this many.
N_GEOMETRIES: Final = 16
DISPLACEMENT: Final = 0.05  # Å, standard deviation of each coordinate
# Step of the central differences. Their error grows with its square, and strongly where a vector of
# PaiNN is short: its norm, sqrt(v² + 1e-8), is curved within 1e-4. Rounding adds about 1e-9.
STEP: Final = 5e-6  # Å
# Largest error of the gradient, as a fraction of the largest force. A wrong factor or sign, or a
# missing part of the gradient, is far above; the error of central differences is below.
MOST_GRADIENT_ERROR: Final = 1e-6
# Largest root mean square error over the largest value. Float32 has about 1e-6; the result of
# another geometry has more than 1e-2.
MOST_ERROR: Final = 1e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class Potential:
    """A model for one molecule in one dtype; ``Peer.make`` returns it for models.

    ``make`` gets atomic numbers ``[n_atoms]`` (int64) and the dtype, and always draws the same
    weights. Its argument ``compiled``, if it has one, is used for float32 only.

    Attributes:
        evaluate: Function from positions ``[n_atoms, 3]`` in Å, in the dtype, to energy (one number)
            and forces ``[n_atoms, 3]``, as tensors or arrays in the model's units. Must not change
            the positions.
        n_weights: Number of trainable weights.
    """

    evaluate: Evaluate
    n_weights: int


class MovingPotential:
    """A call without arguments that evaluates the next geometry each time.

    Args:
        evaluate: See ``Potential``.
        geometries: Positions ``[n_atoms, 3]``.

    Attributes:
        turn: Index of the geometry that was evaluated last.
    """

    __slots__ = ("_evaluate", "_geometries", "turn")

    def __init__(self, evaluate: Evaluate, geometries: Sequence[torch.Tensor]) -> None:
        self._evaluate = evaluate
        self._geometries = list(geometries)
        self.turn = -1

    def __call__(self) -> tuple[Any, Any]:
        """Return energy and forces."""
        self.turn = (self.turn + 1) % len(self._geometries)
        return self._evaluate(self._geometries[self.turn])


class ByItself:
    """Compares each model with its own float64 twin.

    Args:
        workload: Workload whose inputs are weights (not used), atomic numbers and positions in Å.
        size: Name of a size of the workload.
    """

    def __init__(self, workload: Workload, size: str) -> None:
        generator = torch.Generator().manual_seed(SEED)
        _, numbers, positions = resolve(workload.make_inputs)(workload.sizes[size], generator)
        shape = (N_GEOMETRIES, *positions.shape)
        moved = positions + DISPLACEMENT * torch.randn(
            shape, dtype=torch.float64, generator=generator
        )
        self._numbers: torch.Tensor = numbers
        # Rounded, so that both dtypes get the same geometries.
        self._geometries = moved.to(torch.float32)
        self._twins: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self._gradient_errors: dict[str, float] = {}

    def start(self, peer: Peer) -> Started:
        """Make a peer in float32, and keep the results of its float64 twin.

        Raises:
            ValueError: If two geometries have the same energy: a constant result would then pass.
        """
        make = resolve(peer.make)
        arguments = {name: value for name, value in peer.arguments.items() if name != "compiled"}
        twin: Potential = make(self._numbers, torch.float64, **arguments)
        geometries = self._geometries.to(torch.float64)
        energies, forces = _stacked([_numbers_of(twin.evaluate(x)) for x in geometries])
        if len(set(energies.tolist())) < N_GEOMETRIES:
            raise ValueError(f"energies must differ with the geometry, got {energies.tolist()}")
        self._twins[peer.name] = energies, forces
        self._gradient_errors[peer.name] = gradient_error(twin.evaluate, geometries[0])
        potential: Potential = make(self._numbers, torch.float32, **peer.arguments)
        call = MovingPotential(potential.evaluate, self._geometries)
        return Started(call=call, n_weights=potential.n_weights)

    def judge(self, peer: Peer, call: Callable[[], Any]) -> Judgement:
        """Run the call once for each geometry, and compare all results with those of the twin."""
        if not isinstance(call, MovingPotential):
            raise TypeError(
                f"{peer.name} must be called through MovingPotential, got {type(call)}"
            )
        found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for _ in range(N_GEOMETRIES):
            result = call()
            found[call.turn] = _numbers_of(result)
        energies, forces = _stacked([found[turn] for turn in range(N_GEOMETRIES)])
        error = max(
            _rmse_over_scale(result, exact)
            for result, exact in zip((energies, forces), self._twins[peer.name], strict=True)
        )
        off = self._gradient_errors[peer.name]
        if not off <= MOST_GRADIENT_ERROR:
            reason = (
                f"forces are not minus the gradient of the energy: off by {off:.1e} of the largest"
            )
            return Judgement(passed=False, error=_finite(error), reason=reason)
        if not error <= MOST_ERROR:
            reason = f"relative error against itself in float64: {error:.1e}"
            return Judgement(passed=False, error=_finite(error), reason=reason)
        return Judgement(passed=True, error=error)


def gradient_error(evaluate: Evaluate, positions: torch.Tensor) -> float:
    """Return the error of forces against central differences of the energy, over the largest force.

    Args:
        evaluate: See ``Potential``, in float64.
        positions: Shape ``[n_atoms, 3]``, in Å, float64.
    """
    differences = torch.zeros_like(positions)
    for atom in range(positions.shape[0]):
        for axis in range(3):
            energies = []
            for step in (STEP, -STEP):
                moved = positions.clone()
                moved[atom, axis] += step
                energies.append(float(_numbers_of(evaluate(moved))[0]))
            differences[atom, axis] = -(energies[0] - energies[1]) / (2.0 * STEP)
    _, forces = _numbers_of(evaluate(positions))
    return float((forces - differences).abs().max() / differences.abs().max())


def all_pairs(n_atoms: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return first and second atom of all ordered pairs of different atoms, ``[n_pairs]`` each.

    A valid list of neighbours if the molecule is smaller than the cutoff, or if the model's terms
    vanish beyond the cutoff.
    """
    first, second = (~torch.eye(n_atoms, dtype=torch.bool)).nonzero().unbind(dim=1)
    return first.contiguous(), second.contiguous()


def differentiated(energy_of: Callable[[torch.Tensor], torch.Tensor]) -> Evaluate:
    """Return a function for energy and forces, by autograd of the energy.

    Args:
        energy_of: Function from positions ``[n_atoms, 3]`` to the energy, a tensor of one number.
    """

    def evaluate(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = positions.detach().requires_grad_()
        energy = energy_of(x).sum()
        (gradient,) = torch.autograd.grad(energy, x)
        return energy.detach(), -gradient

    return evaluate


def count_weights(module: torch.nn.Module) -> int:
    """Return the number of trainable parameters of a module."""
    return sum(weight.numel() for weight in module.parameters())


def _numbers_of(result: tuple[Any, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    # With a dtype, because a Python float would become float32.
    energy, forces = (torch.as_tensor(x, dtype=torch.float64).detach() for x in result)
    return energy.reshape(()), forces


def _stacked(
    results: Sequence[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor]:
    energies, forces = zip(*results, strict=True)
    return torch.stack(energies), torch.stack(forces)


def _rmse_over_scale(result: torch.Tensor, exact: torch.Tensor) -> float:
    if result.shape != exact.shape:
        raise ValueError(f"must return shape {list(exact.shape)}, got {list(result.shape)}")
    return float((result - exact).square().mean().sqrt() / exact.abs().max())


def _finite(error: float) -> float | None:
    return error if error < float("inf") else None
