"""Variants of a formulation for GPUs only."""

from __future__ import annotations

from typing import Any, Final

from ivhl.workload import Mode, Variant

# A CPU has no CUDA graphs, and autotuning there affects large matrix multiplications only.
MODES: Final[tuple[Mode, ...]] = ("reduce-overhead", "max-autotune")


def cuda_variants(formulation: str, **arguments: Any) -> tuple[Variant, ...]:  # noqa: ANN401
    """Return the variants of a formulation in the modes that make sense on a GPU only.

    Args:
        formulation: First part of the names, e.g. ``real`` of ``real-max-autotune``.
        **arguments: Other arguments of ``Variant``.
    """
    return tuple(
        Variant(
            name=f"{formulation}-{mode}", mode=mode, dynamic=False, devices=("cuda",), **arguments
        )
        for mode in MODES
    )
