"""The same steps with moments over groups of channels, and the GELU as a logistic function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.rollout.rollout_instance.reference import evolve

if TYPE_CHECKING:
    Weights = dict[str, Any]

GROUPS = 4  # repeated on purpose, as all constants of a reference
CUBIC = 0.044715


def reference(parameters: Weights, state: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return the states after all steps, float64."""
    return evolve(parameters, state, noise, n_groups=GROUPS, activation=_gelu)


def _gelu(h: torch.Tensor) -> torch.Tensor:
    """Return ``h / (1 + exp(-2 u))``, which is ``h (1 + tanh u) / 2``."""
    u = math.sqrt(2.0 / math.pi) * (h + CUBIC * h**3)
    return h * torch.sigmoid(2.0 * u)
