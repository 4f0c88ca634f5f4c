"""Neural-operator rollout: apply a convolutional operator to a state many times.

Each name is imported when it is first used, as in ``ivhl.mlff``. ``python -m ivhl.rollout generate``
writes a dataset; only ``ivhl.rollout.dataset`` needs zarr.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ivhl.rollout.evolution import evolve, make_step
    from ivhl.rollout.kernels import profile
    from ivhl.rollout.noise import StepNoise
    from ivhl.rollout.operator import Architecture, apply_operator, make_parameters
    from ivhl.rollout.policy import Policy
    from ivhl.rollout.precision import measure_drift, select_precision
    from ivhl.rollout.training import rollout_loss

__all__ = [
    "Architecture",
    "Policy",
    "StepNoise",
    "apply_operator",
    "evolve",
    "make_parameters",
    "make_step",
    "measure_drift",
    "profile",
    "rollout_loss",
    "select_precision",
]

_MODULES = {
    "Architecture": "operator",
    "StepNoise": "noise",
    "Policy": "policy",
    "apply_operator": "operator",
    "evolve": "evolution",
    "make_parameters": "operator",
    "make_step": "evolution",
    "measure_drift": "precision",
    "profile": "kernels",
    "rollout_loss": "training",
    "select_precision": "precision",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (any name of these modules)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
