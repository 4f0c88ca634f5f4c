"""The molecules for training, those held out, and the families of their geometries.

A family is one way to make geometries. A trajectory is a sequence of geometries that belong
together: snapshots of one run of molecular dynamics, or draws from one generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# Closed shells of H, C, N and O, by their names in the G2 set of ase.build.molecule.
TRAINED: Final = (
    "H2",
    "H2O",
    "CH4",
    "C6H6",
    "NH3",
    "N2",
    "CO",
    "CO2",
    "HCN",
    "C2H2",
    "C2H4",
    "C2H6",
    "H2CO",
    "CH3OH",
    "HCOOH",
    "H2O2",
    "N2H4",
    "CH3CN",
    "H3CNH2",
    "CH3CHO",
    "CH3OCH3",
)
# Not trained on: the trained molecules contain their bonds, but not their arrangement.
UNSEEN: Final = ("C3H8", "CH3CH2OH", "H2CCO")


@dataclass(frozen=True, slots=True)
class Family:
    """One way to make geometries.

    Attributes:
        name: Name in the model card.
        kind: ``dynamics`` is Langevin dynamics; ``modes`` draws normal modes, classically;
            ``noise`` displaces every coordinate; ``scale`` scales the molecule, and adds a little
            noise.
        amount: Temperature in K for the first two, standard deviation in Å for ``noise``, largest
            relative change for ``scale``.
    """

    name: str
    kind: Literal["dynamics", "modes", "noise", "scale"]
    amount: float


FAMILIES: Final = (
    Family("MD 300 K", "dynamics", 300.0),
    Family("MD 600 K", "dynamics", 600.0),
    Family("MD 1200 K", "dynamics", 1200.0),
    Family("modes 600 K", "modes", 600.0),
    Family("modes 2000 K", "modes", 2000.0),
    Family("noise 0.04 Å", "noise", 0.04),
    Family("noise 0.08 Å", "noise", 0.08),
    Family("scale 10 %", "scale", 0.1),
)
