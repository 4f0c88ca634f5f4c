"""Compute labels: energy and forces of one geometry by GFN2-xTB, in eV and eV/Å."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

# tblite sums over OpenMP threads in any order, so the last digits of labels would differ from run to
# run. Its library reads this variable when it is loaded.
os.environ["OMP_NUM_THREADS"] = "1"

from tblite.interface import Calculator

if TYPE_CHECKING:
    Array = Any  # numpy.ndarray; the tool's type check has no numpy

METHOD: Final = "GFN2-xTB"
# CODATA 2018: Tiesinga et al., Rev. Mod. Phys. 93, 025010 (2021).
HARTREE: Final = 27.211386245988  # eV
BOHR: Final = 0.529177210903  # Å
# Tolerance of the self-consistent charges, relative to tblite's default. With 1.0, forces of H2O and
# CO have errors of about 1e-5 and 2e-4 eV/Å.
ACCURACY: Final = 0.01


def label(numbers: Array, positions: Array) -> tuple[float, Array]:
    """Return energy and forces of a neutral molecule without unpaired electrons.

    Keeps no state between calls, so the result depends only on the geometry.

    Args:
        numbers: Atomic numbers, shape ``[n_atoms]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Total energy of the method in eV, and forces in eV/Å, shape ``[n_atoms, 3]``.

    Raises:
        tblite.exceptions.TBLiteRuntimeError: If the charges do not converge.

    Source:
        Bannwarth, Ehlert and Grimme, GFN2-xTB, J. Chem. Theory Comput. 15, 1652 (2019).
    """
    calculator = Calculator(METHOD, numbers, positions / BOHR)
    calculator.set("verbosity", 0)
    calculator.set("accuracy", ACCURACY)
    result = calculator.singlepoint()
    return HARTREE * float(result.get("energy")), -HARTREE / BOHR * result.get("gradient")
