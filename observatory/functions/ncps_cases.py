"""A recurrent cell of ncps with sparse wiring: a Python loop over time."""

from ncps.torch import CfC
from ncps.wirings import AutoNCP


def wired():
    return CfC(12, AutoNCP(24, 4, seed=7))
