"""The student as a module, and functions from atoms to energy and forces made of it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from studies.founding.student_seed import energy

if TYPE_CHECKING:
    from collections.abc import Callable

    from studies.founding.student_seed import Parameters

    Evaluate = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    EnergyOf = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Student(torch.nn.Module):  # type: ignore[misc]  # torch is not where types are checked
    """The student, with the two methods that the founding benchmark depends on.

    Args:
        weights: As ``studies.founding.student_seed.make_parameters`` makes them, in the dtype of
            positions.
        energy_of: ``energy`` or ``energy_all_pairs`` of the same module.
    """

    def __init__(
        self, weights: Parameters, energy_of: Callable[..., torch.Tensor] = energy
    ) -> None:
        super().__init__()
        self.weights = weights
        self.energy_of = energy_of
        # torch.jit.trace makes constants of tensors that are not the module's own.
        for name, tensor in _flat(weights).items():
            self.register_buffer(name, tensor)

    def forward(self, atomic_numbers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the energy in eV. ``torch.compile`` of the module compiles this and no more."""
        return self.energy_of(self.weights, atomic_numbers, positions)

    def predict_energy_and_forces(
        self, atomic_numbers: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return energy in eV and forces in eV/Å.

        A module that ``torch.compile`` returns hands this method out bound to the module it was made
        of, so that calling it runs nothing compiled.
        """
        return differentiated(self, atomic_numbers, positions)


def differentiated(
    energy_of: EnergyOf, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energy in eV and forces in eV/Å, by autograd around ``energy_of``."""
    with torch.enable_grad():
        x = positions.detach().requires_grad_()
        e = energy_of(atomic_numbers, x)
        (gradient,) = torch.autograd.grad(e, x)
    return e.detach(), -gradient


def with_forces(energy_of: EnergyOf) -> Evaluate:
    """Return ``differentiated`` of one function for the energy."""

    def evaluate(
        atomic_numbers: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return differentiated(energy_of, atomic_numbers, positions)

    return evaluate


def in_half(energy_of: EnergyOf) -> EnergyOf:
    """Return the same under ``torch.autocast`` to float16; it is not meant for the backward."""

    def energy_in_half(atomic_numbers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        # Without the cache, which would keep what is traced; it saves nothing in one evaluation.
        with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
            return energy_of(atomic_numbers, positions)

    return energy_in_half


def traced(student: Student) -> EnergyOf:
    """Return the energy as TorchScript, traced in the first call."""
    found: list[EnergyOf] = []

    def energy_of(atomic_numbers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if not found:
            with warnings.catch_warnings():
                # It is deprecated, and it keeps the checks of shapes as they came out. Both known.
                warnings.simplefilter("ignore")
                example = (atomic_numbers, positions)
                found.append(torch.jit.trace(student, example, check_trace=False))
        return found[0](atomic_numbers, positions)

    return energy_of


def _flat(weights: Parameters) -> dict[str, torch.Tensor]:
    layers = enumerate(weights["layers"])
    flat = {f"layer_{n}_{name}": tensor for n, layer in layers for name, tensor in layer.items()}
    return flat | {name: tensor for name, tensor in weights.items() if name != "layers"}
