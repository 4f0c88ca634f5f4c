"""The student as an ASE calculator that counts its evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from ase.calculators.calculator import Calculator, all_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from studies.founding.model import Evaluate


class StudentCalculator(Calculator):  # type: ignore[misc]  # ase is not where types are checked
    """Energy in eV and forces in eV/Å, in float32, both in one evaluation of the model.

    ASE calls ``calculate`` only for results that it has not cached for the current atoms.

    Args:
        evaluate: Model, a function from atomic numbers and positions to energy and forces.

    Attributes:
        evaluations: Number of evaluations of the model.
    """

    implemented_properties: ClassVar[list[str]] = ["energy", "forces"]

    def __init__(self, evaluate: Evaluate) -> None:
        super().__init__()
        self.evaluate = evaluate
        self.evaluations = 0

    def calculate(
        self,
        atoms: Any = None,  # noqa: ANN401  (ase.Atoms)
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = tuple(all_changes),
    ) -> None:
        """Evaluate the model; ASE calls this when a result is missing."""
        super().calculate(atoms, properties, system_changes)
        numbers = torch.tensor(self.atoms.numbers, dtype=torch.int64)
        positions = torch.tensor(self.atoms.positions, dtype=torch.float32)
        self.evaluations += 1
        energy, forces = self.evaluate(numbers, positions)
        self.results = {"energy": float(energy), "forces": forces.double().numpy()}
