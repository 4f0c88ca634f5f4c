"""Labels: energy and forces of one geometry by GFN2-xTB, in eV and eV/Å."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

# tblite adds up over OpenMP's threads in whatever order they come, so that labels would differ in
# their last digits from run to run. Its library reads this when it is loaded.
os.environ["OMP_NUM_THREADS"] = "1"

from tblite.interface import Calculator

if TYPE_CHECKING:
    Array = Any  # numpy.ndarray; the tool's type check has no numpy

METHOD: Final = "GFN2-xTB"
# CODATA 2018: Tiesinga et al., Rev. Mod. Phys. 93, 025010 (2021).
HARTREE: Final = 27.211386245988  # eV
BOHR: Final = 0.529177210903  # Å
# Of the self-consistent charges, relative to tblite's default. With 1.0 forces of H2O and CO are
# known to some 1e-5 and 2e-4 eV/Å only; ten times less costs nothing.
ACCURACY: Final = 0.01


def label(numbers: Array, positions: Array) -> tuple[float, Array]:
    """Return energy and forces of a neutral molecule without unpaired electrons.

    Nothing is kept from one call to the next, so the result depends on the geometry alone.

    Args:
        numbers: Atomic numbers, shape ``[n_atoms]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, the whole of it as the method gives it, and forces in eV/Å, shape
        ``[n_atoms, 3]``.

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
