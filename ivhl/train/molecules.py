"""Which molecules are trained on, and which are kept out to see what the model makes of others."""

from __future__ import annotations

from typing import Final

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
# Never trained on: their bonds are known to the model, their arrangement is not.
UNSEEN: Final = ("C3H8", "CH3CH2OH", "H2CCO")
