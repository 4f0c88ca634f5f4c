"""Surgical compilation: a transformer that compiles only chosen operations.

Each name is imported when it is first used, as in ``ivhl.mlff``. User guide: docs/surgical.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ivhl.surgical.configuration import SIZES, StackConfiguration
    from ivhl.surgical.fp8 import Fp8Linear, ScalingRecipe, fp8_kernel, fp8_step
    from ivhl.surgical.operations import make_angles, rotate
    from ivhl.surgical.plan import PLANS, CompilePlan, choose_operations
    from ivhl.surgical.stack import TransformerStack, train_step

__all__ = [
    "PLANS",
    "SIZES",
    "CompilePlan",
    "Fp8Linear",
    "ScalingRecipe",
    "StackConfiguration",
    "TransformerStack",
    "choose_operations",
    "fp8_kernel",
    "fp8_step",
    "make_angles",
    "rotate",
    "train_step",
]

_MODULES = {
    "PLANS": "plan",
    "SIZES": "configuration",
    "Fp8Linear": "fp8",
    "CompilePlan": "plan",
    "ScalingRecipe": "fp8",
    "StackConfiguration": "configuration",
    "TransformerStack": "stack",
    "choose_operations": "plan",
    "fp8_kernel": "fp8",
    "fp8_step": "fp8",
    "make_angles": "operations",
    "rotate": "operations",
    "train_step": "stack",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (any name of these modules)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
