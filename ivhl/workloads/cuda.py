"""The variants of a formulation that only a GPU has."""

from __future__ import annotations

from typing import Any, Final

from ivhl.workload import Mode, Variant

# On a CPU there are no CUDA graphs, and only products of large matrices would be tuned.
MODES: Final[tuple[Mode, ...]] = ("reduce-overhead", "max-autotune")


def cuda_variants(formulation: str, **arguments: Any) -> tuple[Variant, ...]:  # noqa: ANN401
    """Return a formulation in the modes that mean something on a GPU only.

    Args:
        formulation: First part of the names, e.g. ``real`` of ``real-max-autotune``.
        **arguments: What else ``Variant`` takes.
    """
    return tuple(
        Variant(name=f"{formulation}-{mode}", mode=mode, devices=("cuda",), **arguments)
        for mode in MODES
    )
