"""The student as a module, and the functions that compute energy and forces with it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from studies.founding.student_seed import energy

if TYPE_CHECKING:
    from collections.abc import Callable

    from studies.founding.student_seed import StudentParameters

    Evaluate = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    EnergyOf = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Student(torch.nn.Module):  # type: ignore[misc]  # torch is not where types are checked
    """The student, with the two methods that the founding benchmark depends on.

    Args:
        weights: Weights from ``studies.founding.student_seed.make_parameters``, in the dtype of the
            positions.
        energy_of: ``energy`` or ``energy_all_pairs`` of that module.
    """

    def __init__(
        self, weights: StudentParameters, energy_of: Callable[..., torch.Tensor] = energy
    ) -> None:
        super().__init__()
        self.weights = weights
        self.energy_of = energy_of
        # torch.jit.trace turns tensors that are no buffers of the module into constants.
        for name, tensor in _flat(weights).items():
            self.register_buffer(name, tensor)

    def forward(self, atomic_numbers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the energy in eV. ``torch.compile`` of the module compiles only this method."""
        return self.energy_of(self.weights, atomic_numbers, positions)

    def predict_energy_and_forces(
        self, atomic_numbers: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return energy in eV and forces in eV/Å.

        The module that ``torch.compile`` returns has this method bound to the original module, so
        calling it runs no compiled code.
        """
        return differentiated(self, atomic_numbers, positions)


def differentiated(
    energy_of: EnergyOf, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energy in eV and forces in eV/Å, by autograd of ``energy_of``."""
    with torch.enable_grad():
        x = positions.detach().requires_grad_()
        e = energy_of(atomic_numbers, x)
        (gradient,) = torch.autograd.grad(e, x)
    return e.detach(), -gradient


def with_forces(energy_of: EnergyOf) -> Evaluate:
    """Return a function for energy and forces, ``differentiated`` of the energy."""

    def evaluate(
        atomic_numbers: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return differentiated(energy_of, atomic_numbers, positions)

    return evaluate


def in_half(energy_of: EnergyOf) -> EnergyOf:
    """Return the function under ``torch.autocast`` to float16, without its backward pass."""

    def energy_in_half(atomic_numbers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        # The cache would keep traced tensors, and saves nothing in a single evaluation.
        with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
            return energy_of(atomic_numbers, positions)

    return energy_in_half


def traced(student: Student) -> EnergyOf:
    """Return the energy as TorchScript, traced at the first call."""
    found: list[EnergyOf] = []

    def energy_of(atomic_numbers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if not found:
            with warnings.catch_warnings():
                # Tracing is deprecated, and it makes the results of shape checks constant.
                warnings.simplefilter("ignore")
                example = (atomic_numbers, positions)
                found.append(torch.jit.trace(student, example, check_trace=False))
        return found[0](atomic_numbers, positions)

    return energy_of


def _flat(weights: StudentParameters) -> dict[str, torch.Tensor]:
    layers = enumerate(weights["layers"])
    flat = {f"layer_{n}_{name}": tensor for n, layer in layers for name, tensor in layer.items()}
    return flat | {name: tensor for name, tensor in weights.items() if name != "layers"}
