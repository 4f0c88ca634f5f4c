"""What a rollout spends its time on: the most expensive kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ivhl.device
from ivhl.compile import clear_compile_cache
from ivhl.rollout.evolution import evolve

if TYPE_CHECKING:
    import torch

    from ivhl.rollout.operator import Architecture, Parameters


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, or one operation of PyTorch, in a profile.

    Attributes:
        name: As the profiler names it.
        seconds: Time in it, less that of what it calls, in all steps.
        calls: How many times it ran.
        share: Part of the time of all kernels.
    """

    name: str
    seconds: float
    calls: int
    share: float


def profile(
    architecture: Architecture,
    parameters: Parameters,
    state: torch.Tensor,
    n_steps: int = 10,
    *,
    n_kernels: int = 5,
    **options: Any,  # noqa: ANN401  (those of evolve)
) -> list[Kernel]:
    """Return the most expensive kernels of a rollout, the most expensive first.

    Everything compiled by ``ivhl.compile`` in this process is compiled again at its next call, and
    here with names for its CPU kernels.

    Args:
        architecture: The architecture of the operators.
        parameters: Their weights, as for ``evolve``.
        state: The initial state, as for ``evolve``.
        n_steps: Steps to profile; one more is made before.
        n_kernels: How many to return.
        **options: Other arguments of ``evolve``.

    Raises:
        ValueError: If an argument of ``evolve`` is wrong, or ``n_kernels`` is negative.
    """
    if n_kernels < 0:
        raise ValueError(f"n_kernels must not be negative, got {n_kernels}")
    import torch._inductor.config as inductor  # noqa: PLC0415  (seconds)

    with inductor.patch({"cpp.enable_kernel_profile": True}):
        clear_compile_cache()
        try:
            evolve(architecture, parameters, state, 1, **options)
            with ivhl.device.profile(device=state.device) as seen:
                evolve(architecture, parameters, state, n_steps, **options)
        finally:
            clear_compile_cache()
    spent = seen.kernels()
    total = sum(seconds for _, seconds, _ in spent) or 1.0
    return [
        Kernel(name=name, seconds=seconds, calls=calls, share=seconds / total)
        for name, seconds, calls in spent[:n_kernels]
    ]
